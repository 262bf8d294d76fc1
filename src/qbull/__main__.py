"""`python -m qbull`: the same as the command `qbull`."""

from qbull.cli.main import main

if __name__ == "__main__":
    main()
