// pm2 start ecosystem.config.js, in this directory. The settings come from the environment of the shell.
// kill_timeout is longer than --grace: running jobs finish before PM2 kills the worker.
module.exports = {
  apps: [
    {
      name: "ceres-app",
      script: "uvicorn",
      args: `web:web --port ${process.env.APP_PORT || 3000}`,
      interpreter: "none",
    },
    {
      name: "ceres-worker",
      script: "qbull",
      args: "worker ceres:app --grace 25",
      interpreter: "none",
      kill_timeout: 40000,
    },
    {
      name: "ceres-queues-ui",
      script: "qbull",
      args: `serve ceres:app --port ${process.env.UI_PORT || 3050}`,
      interpreter: "none",
    },
  ],
};
