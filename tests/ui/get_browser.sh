# A Chromium for the tests of the dashboard: the one that is there, Debian's, or Playwright's. Without one these tests are skipped, and say so.
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing chromium for the tests of the dashboard"
    export DEBIAN_FRONTEND=noninteractive
    { timeout 120 apt-get -qq update && timeout 300 apt-get -qq install -y --no-install-recommends chromium; } >/dev/null 2>&1 && exit 0
fi
timeout 120 "$1/playwright" install chromium >/dev/null 2>&1 || echo "there is no Chromium: the tests of the dashboard in a browser are skipped"
exit 0
