# Browsers for the tests of the dashboard: those that are there, Debian's, or Playwright's Chromium. Without one its tests are skipped, and say so.
# Fails if one is missing, so that the next run tries again.
find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
find_firefox() { command -v firefox-esr || command -v firefox; }
missing=""
find_chromium >/dev/null || missing="chromium"
find_firefox >/dev/null || missing="$missing firefox-esr"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing $missing for the tests of the dashboard"
    export DEBIAN_FRONTEND=noninteractive
    { timeout 120 apt-get -qq update && timeout 300 apt-get -qq install -y --no-install-recommends $missing; } >/dev/null 2>&1
fi
found=0
find_firefox >/dev/null || { found=1; echo "there is no Firefox: the test of the dashboard in Firefox is skipped"; }
find_chromium >/dev/null || timeout 120 "$1/playwright" install chromium >/dev/null 2>&1 || { found=1; echo "there is no Chromium: the tests of the dashboard in a browser are skipped"; }
exit $found
