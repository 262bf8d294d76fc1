# The template engine of Helm for the tests of the chart: Helm itself, or Debian's Go with Sprig. Without one these tests are skipped, and say so.
# Fails without one, so that the next run tries again.
command -v helm >/dev/null || { command -v go >/dev/null && test -d /usr/share/gocode/src/github.com/Masterminds/sprig; } && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Go and Sprig for the tests of the Helm chart"
    export DEBIAN_FRONTEND=noninteractive
    { timeout 120 apt-get -qq update && timeout 300 apt-get -qq install -y --no-install-recommends golang-go golang-github-masterminds-sprig-dev golang-gopkg-yaml.v3-dev; } >/dev/null 2>&1 && exit 0
fi
echo "there is neither Helm nor Go with Sprig: the tests of the Helm chart are skipped"
exit 1
