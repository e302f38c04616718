/** What operators and orchestrators ask: alive, ready (and if not, why), figures. */
import type { FastifyInstance } from 'fastify';
import { AppError } from '../errors.js';
import type { Node } from './handlers/context.js';
import { sameSecret } from './http-server.js';
import { BUS_SILENT_MS } from './options.js';
import { bearerToken } from './tokens.js';

export function addOpsRoutes(app: FastifyInstance, node: Node, isDraining: () => boolean): void {
  const { ports, options } = node;

  // A process that answers is alive: ending it because Redis is away would only lose its sockets.
  app.get('/livez', () => ({ status: 'ok', nodeId: node.nodeId, version: options.version }));

  app.get('/readyz', async (_request, reply) => {
    const checks = {
      redis: (await options.checkRedis?.()) ?? 'ok',
      bus: busCheck(),
      draining: isDraining() ? 'draining' : 'ok',
    };
    const ready = Object.values(checks).every((check) => check === 'ok');
    return reply.code(ready ? 200 : 503).send({ status: ready ? 'ok' : 'not ready', checks });
  });

  function busCheck(): string {
    const ageMs = ports.bus.probeAgeMs();
    if (ageMs <= BUS_SILENT_MS) return 'ok';
    return Number.isFinite(ageMs) ? `no probe came back for ${Math.round(ageMs)} ms` : 'no probe came back yet';
  }

  app.get('/metrics', async (request, reply) => {
    const accepted = [options.adminToken, options.metricsToken].filter((token) => token !== undefined);
    const given = bearerToken(request.headers.authorization) ?? '';
    if (accepted.length > 0 && !accepted.some((token) => sameSecret(given, token))) {
      throw new AppError('UNAUTHENTICATED', 'the metrics token is missing or wrong');
    }
    const text = (await ports.meter.dump?.()) ?? '';
    return reply.type('text/plain; version=0.0.4; charset=utf-8').send(text);
  });
}
