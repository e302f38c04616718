# syntax=docker/dockerfile:1
# One image for nodes and workers: `homing gateway` unless another command is given.

FROM node:20-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
# The build is the next step, so it is not run by `prepare` here.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json ./
COPY src src
RUN npm run build

FROM node:20-bookworm-slim
# tini: commands leave orphans behind, and Node as PID 1 would not reap them. bubblewrap: sandboxes for commands.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap tini \
    && rm -rf /var/lib/apt/lists/*
ENV NODE_ENV=production
WORKDIR /app
COPY package.json package-lock.json ./
# Without the tools of the build, `prepare` could not run.
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund \
    && npm cache clean --force
COPY --from=build /app/dist dist
RUN ln -s /app/dist/cli/main.js /usr/local/bin/homing \
    && install -d -o node -g node -m 0700 /var/lib/homing /home/node/work
USER node
WORKDIR /home/node/work
ENV HOMING_DATA_DIR=/var/lib/homing HOMING_HOST=0.0.0.0 HOMING_OPS_HOST=0.0.0.0
EXPOSE 7420 7421
# A node that answers is alive, also while Redis is away. A worker has the port that HOMING_WORKER_OPS_PORT says, or none: ask that one instead.
HEALTHCHECK --interval=5s --timeout=2s --start-period=10s --retries=3 \
    CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.HOMING_OPS_PORT || 7421}/livez`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["/usr/bin/tini", "--", "homing"]
CMD ["gateway"]
