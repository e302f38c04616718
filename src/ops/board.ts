/**
 * The queue board at /admin/queues: BullMQ's jobs of every pool, as they are, read only, by its API as well as its page.
 * Promote, clean, remove and retry would go around the rules of ownership and at most once, so they are not there.
 */
import { mountLater } from '../gateway/mount-later.js';
import type { OpsPlugin } from '../gateway/options.js';
import type { BoardQueues } from '../queue/board.js';

export const BOARD_PATH = '/admin/queues';

/** The board's page asks a font service of others; it does without. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; " +
  "connect-src 'self'; manifest-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'";

/** The board shows pools from the moment they are named with `show`. */
export function createBoard(queues: BoardQueues): { readonly plugin: OpsPlugin; show(pools: readonly string[]): void } {
  const pools = new Set<string>();
  let showNew: (() => void) | undefined;

  async function load(): Promise<OpsPlugin> {
    const [{ createBullBoard }, { BullMQAdapter }, { FastifyAdapter }] = await Promise.all([
      import('@bull-board/api'),
      import('@bull-board/api/bullMQAdapter'),
      import('@bull-board/fastify'),
    ]);
    const serverAdapter = new FastifyAdapter();
    serverAdapter.setBasePath(BOARD_PATH);
    const board = createBullBoard({
      queues: [],
      serverAdapter,
      options: { uiConfig: { boardTitle: 'Homing queues', hideRedisDetails: true } },
    });
    const shown = new Set<string>();
    showNew = () => {
      for (const pool of pools) {
        if (shown.has(pool)) continue;
        shown.add(pool);
        board.addQueue(new BullMQAdapter(queues.queueOf(pool), { readOnlyMode: true, allowRetries: false }));
      }
    };
    showNew();
    return async (app) => void (await app.register(serverAdapter.registerPlugin(), { prefix: BOARD_PATH }));
  }

  return {
    async plugin(app) {
      // The board's own switch misses routes (pausing every queue at once); a method that writes gets no further than here.
      app.addHook('onRequest', async (request, reply) => {
        if (!request.url.startsWith(BOARD_PATH)) return;
        void reply.header('content-security-policy', POLICY);
        if (request.method === 'GET' || request.method === 'HEAD') return;
        const message = 'the board is read only: use the commands of Homing, which keep its rules';
        await reply.code(405).send({ code: 'READ_ONLY', message, retryable: false });
      });
      mountLater(app, BOARD_PATH, load);
    },
    show(named) {
      for (const pool of named) pools.add(pool);
      showNew?.();
    },
  };
}
