"""Draw the diagrams of the documentation.

`docs/diagrams/NAME.txt` describes a picture, `python -m diagrams` writes `docs/images/NAME.svg`. A description has one
element on each line:

    size WIDTH HEIGHT "TITLE FOR SCREEN READERS"
    group X Y WIDTH HEIGHT "LABEL"            a frame behind other elements
    box ID X Y WIDTH HEIGHT "LABEL" KIND      a | in the label starts a new, smaller line
    cylinder ID X Y WIDTH HEIGHT "LABEL" KIND
    arrow FROM TO "LABEL" KIND                FROM and TO: ID.SIDE, ID.SIDE+OFFSET or X,Y
    line FROM TO KIND
    text X Y "WORDS" KIND
    value X Y WIDTH HEIGHT NUMBER OF "LABEL" KIND    a horizontal bar of a chart

KIND is one or more of the classes in `svg.STYLE`. An arrow can have corners: `via X,Y` once for each. `at X,Y` places its
label.
"""
