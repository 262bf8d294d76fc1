// pm2 start ecosystem.config.js, in this directory. The settings come from the environment of the shell.
// kill_timeout is longer than the grace period of the worker: running jobs finish before PM2 kills a server.
const server = (number, port) => ({
  name: `schedulers-${number}`,
  script: "uvicorn",
  args: `server:web --port ${port} --timeout-graceful-shutdown 3`,
  interpreter: "none",
  kill_timeout: 40000,
});

module.exports = {
  apps: [
    server(1, process.env.SERVER_1_PORT || 3001),
    server(2, process.env.SERVER_2_PORT || 3002),
    server(3, process.env.SERVER_3_PORT || 3003),
  ],
};
