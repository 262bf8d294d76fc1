# promtool, with which the tests evaluate the alert rules: the one that is there, or the program alone from Debian's package, which would start a server of its own.
command -v promtool >/dev/null || test -x "$1/promtool" && exit 0
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
    echo "getting promtool for the tests of the alert rules"
    folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
    # apt downloads as a user of its own.
    chmod 755 "$folder"
    { (cd "$folder" && timeout 300 apt-get -qq -o APT::Sandbox::User=root download prometheus) && dpkg-deb -x "$folder"/prometheus_*.deb "$folder" &&
        install -m 755 "$folder/usr/bin/promtool" "$1/promtool"; } >/dev/null 2>&1 && exit 0
fi
echo "there is no promtool: the tests of the alert rules are skipped"
exit 0
