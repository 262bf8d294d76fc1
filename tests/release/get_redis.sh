# Redis 7.0 for `make matrix`: the one that is there, or Debian's. Without one the run on Redis fails, and says so.
[ -n "$REDIS_SERVER" ] || command -v redis-server >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing redis-server for the tests"
    export DEBIAN_FRONTEND=noninteractive
    # The package starts a server of its own. Nobody needs that one.
    { timeout 120 apt-get -qq update && timeout 300 apt-get -qq install -y --no-install-recommends redis-server; } >/dev/null 2>&1 && { service redis-server stop >/dev/null 2>&1 || :; } && exit 0
fi
echo "there is no Redis: install the package redis-server"
exit 1
