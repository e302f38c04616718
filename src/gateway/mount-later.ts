/**
 * Mounts a plugin that is loaded when its path is first asked for: a node that nobody looks at starts without it. It lives
 * in an app of its own behind the hooks of the one it is mounted in, whose headers its answers carry as well.
 */
import Fastify, { type FastifyInstance } from 'fastify';
import type { OpsPlugin } from './options.js';

/** @param load called at the first request, and again after it failed */
export function mountLater(app: FastifyInstance, path: string, load: () => Promise<OpsPlugin>): void {
  let opening: Promise<FastifyInstance> | undefined;

  async function open(): Promise<FastifyInstance> {
    const inner = Fastify({ logger: false });
    await inner.register(await load());
    await inner.ready();
    return inner;
  }

  app.addHook('onClose', async () => {
    await (await opening?.catch(() => undefined))?.close();
  });
  for (const url of [path, `${path}/*`]) {
    app.get(url, async (request, reply) => {
      opening ??= open();
      const inner = await opening.catch((error: unknown) => {
        opening = undefined;
        throw error;
      });
      reply.hijack();
      for (const [name, value] of Object.entries(reply.getHeaders())) {
        if (value !== undefined) reply.raw.setHeader(name, value);
      }
      inner.routing(request.raw, reply.raw);
    });
  }
}
