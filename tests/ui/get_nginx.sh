# An nginx for the test behind a proxy: the one that is there, or Debian's. Without one that test is skipped, and says so.
# Fails without one, so that the next run tries again.
command -v nginx >/dev/null || test -x /usr/sbin/nginx && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing nginx for the test behind a proxy"
    export DEBIAN_FRONTEND=noninteractive
    # The package starts a server of its own. Nobody needs that one.
    { timeout 120 apt-get -qq update && timeout 300 apt-get -qq install -y --no-install-recommends nginx-light && { service nginx stop || :; }; } >/dev/null 2>&1 && exit 0
fi
echo "there is no nginx: the test behind a proxy is skipped"
exit 1
