/**
 * What operators see of the cluster: /admin as pages for people, and the same facts as JSON for whoever asks for it.
 * Pages are plain HTML without script, so that they work in any browser and under a strict content policy.
 */
import type { EventBus } from '../domain/ports.js';
import type { OpsPlugin } from '../gateway/options.js';
import { type NodeId, parseCommandId, parseSessionId, type WorkerId } from '../protocol/ids.js';
import type { Census } from '../redis/census.js';
import { age, bytes, type Cell, link, page, table } from './admin-html.js';
import { BOARD_PATH } from './board.js';

const NODE_ID = /^node_[a-z2-7]{26}$/;
const WORKER_ID = /^wrk_[a-z2-7]{26}$/;

interface Reply {
  code(status: number): Reply;
  type(type: string): Reply;
  header(name: string, value: string): Reply;
  send(body: unknown): Reply;
}

export function createAdmin(ports: { readonly census: Census; readonly bus: EventBus; now(): number }): OpsPlugin {
  const { census, bus, now } = ports;

  /** JSON where it is asked for, else the page. */
  const answer = (accept: string | undefined, reply: Reply, facts: unknown, html: () => string) => {
    if (accept?.includes('text/html') !== true) return reply.type('application/json; charset=utf-8').send(facts);
    void reply.header('content-security-policy', "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'");
    return reply.type('text/html; charset=utf-8').send(html());
  };
  const missing = (reply: Reply, what: string) =>
    reply.code(404).send({ code: 'NOT_FOUND', message: `there is no such ${what}`, retryable: false });
  const cursorOf = (query: unknown) => {
    const { cursor } = (query ?? {}) as { cursor?: unknown };
    return typeof cursor === 'string' && /^\d{1,20}$/.test(cursor) ? cursor : '0';
  };

  /** Of a walk over all masters: which, and where in it. */
  const walkOf = (query: unknown) => {
    const { cursor } = (query ?? {}) as { cursor?: unknown };
    return typeof cursor === 'string' && /^\d{1,4}-\d{1,20}$/.test(cursor) ? cursor : '0-0';
  };

  const commandRows = (rows: Awaited<ReturnType<Census['owned']>>['rows']): Cell[][] =>
    rows.map((row) => [
      link(`/admin/commands/${row.commandId}`, row.commandId),
      row.state + (row.outcome === undefined ? '' : ` (${row.outcome.reason})`),
      row.conversation,
      row.principal,
      row.originSessionId ?? '–',
      row.ownerSessionId === null ? 'parked' : link(`/admin/sessions/${row.ownerSessionId}`, row.ownerSessionId),
      String(row.headSeq),
      String(row.lag),
      bytes(row.outputBytes),
      age(now() - row.createdAt),
    ]);
  const COMMAND_HEAD = [
    'command',
    'state',
    'conversation',
    'principal',
    'origin',
    'owner',
    'head',
    'lag',
    'output',
    'age',
  ];
  const more = (path: string, next: string | undefined) =>
    next === undefined ? '' : `<p>${link(`${path}?cursor=${next}`, 'next page').html}</p>`;

  return async (app) => {
    // What the button of a page sends: nothing, in the form of a form.
    app.addContentTypeParser(
      'application/x-www-form-urlencoded',
      { parseAs: 'string', bodyLimit: 1_024 },
      (_request, _body, done) => done(null, undefined),
    );

    app.get('/admin', async (request, reply) => {
      const [nodes, workers] = await Promise.all([census.nodes(), census.workers()]);
      return answer(request.headers.accept, reply, { nodes, workers }, () =>
        page('Homing', [
          `<p>${link(BOARD_PATH, 'Queue board').html} · ${link('/admin/parked', 'Parked commands').html}</p>`,
          '<h2>Nodes</h2>',
          table(
            ['node', 'address', 'version', 'state', 'up', 'sessions', 'outbox', 'hears its channels'],
            nodes.map((n) => [
              link(`/admin/nodes/${n.nodeId}`, n.nodeId),
              n.url,
              n.version,
              n.draining === true ? 'draining' : 'ready',
              age(now() - n.startedAt),
              String(n.sessions),
              n.outboxBytes === undefined ? '–' : bytes(n.outboxBytes),
              n.busAgeMs === undefined ? 'no' : `${n.busAgeMs} ms ago`,
            ]),
            'No node is there.',
          ),
          '<h2>Workers</h2>',
          table(
            ['worker', 'pool', 'running', 'at most', 'containment', 'version', 'state', 'up'],
            workers.map((w) => [
              link(`/admin/workers/${w.workerId}`, w.workerId),
              w.pool ?? '–',
              String(w.commands),
              String(w.concurrency ?? '–'),
              w.containment ?? '–',
              w.version ?? '–',
              w.draining === true ? 'draining' : w.pool === undefined ? 'silent' : 'ready',
              w.startedAt === undefined ? '–' : age(now() - w.startedAt),
            ]),
            'No worker is there: commands wait in their pools.',
          ),
        ]),
      );
    });

    app.get<{ Params: { id: string } }>('/admin/nodes/:id', async (request, reply) => {
      const { id } = request.params;
      if (!NODE_ID.test(id)) return missing(reply, 'node');
      const { rows, next } = await census.sessions(id as NodeId, cursorOf(request.query));
      return answer(request.headers.accept, reply, { sessions: rows, next }, () =>
        page(`Node ${id}`, [
          drainForm(`/admin/nodes/${id}/drain`),
          table(
            ['session', 'principal', 'state', 'generation', 'node', 'owned'],
            rows.map((s) => [
              link(`/admin/sessions/${s.sessionId}`, s.sessionId),
              s.principal,
              s.state,
              String(s.generation),
              s.nodeId,
              String(s.owned),
            ]),
            'This node holds no session.',
          ),
          more(`/admin/nodes/${id}`, next),
        ]),
      );
    });

    app.get<{ Params: { id: string } }>('/admin/workers/:id', async (request, reply) => {
      const { id } = request.params;
      if (!WORKER_ID.test(id)) return missing(reply, 'worker');
      const { rows, next } = await census.running(id as WorkerId, cursorOf(request.query));
      return answer(request.headers.accept, reply, { commands: rows, next }, () =>
        page(`Worker ${id}`, [
          drainForm(`/admin/workers/${id}/drain`),
          table(COMMAND_HEAD, commandRows(rows), 'This worker runs nothing.'),
          more(`/admin/workers/${id}`, next),
        ]),
      );
    });

    app.get<{ Params: { id: string } }>('/admin/sessions/:id', async (request, reply) => {
      const id = parseSessionId(request.params.id);
      if (id === undefined) return missing(reply, 'session');
      const { rows, next } = await census.owned(id, cursorOf(request.query));
      return answer(request.headers.accept, reply, { commands: rows, next }, () =>
        page(`Session ${id}`, [
          table(COMMAND_HEAD, commandRows(rows), 'It owns nothing that is running or not acknowledged.'),
          more(`/admin/sessions/${id}`, next),
        ]),
      );
    });

    app.get('/admin/parked', async (request, reply) => {
      const { rows, next } = await census.parked(walkOf(request.query));
      return answer(request.headers.accept, reply, { commands: rows, next }, () =>
        page('Parked commands', [table(COMMAND_HEAD, commandRows(rows), 'None here.'), more('/admin/parked', next)]),
      );
    });

    app.get<{ Params: { id: string } }>('/admin/commands/:id', async (request, reply) => {
      const id = parseCommandId(request.params.id);
      const found = id === undefined ? undefined : await census.command(id);
      if (found === undefined) return missing(reply, 'command');
      return answer(request.headers.accept, reply, found, () =>
        page(`Command ${found.command.commandId}`, [
          table(COMMAND_HEAD, commandRows([found.command]), ''),
          '<h2>What happened to its entries</h2>',
          table(
            ['when', 'what', 'from', 'to', 'why'],
            found.trace.map((t) => [new Date(t.at).toISOString(), t.what, t.from, t.to, t.why]),
            'Nothing is known of it.',
          ),
        ]),
      );
    });

    /** Asks the process to stop as SIGTERM does. The answer says that it was asked, not that it is over. */
    const drain = (pattern: RegExp, what: string) => async (id: string, accept: string | undefined, reply: Reply) => {
      if (!pattern.test(id)) return missing(reply, what);
      await bus.ask(id as NodeId | WorkerId, JSON.stringify({ v: 1, type: 'drain' }));
      // The button of a page: back to where its end shows.
      if (accept?.includes('text/html')) return reply.code(303).header('location', '/admin').send('');
      return reply.code(202).send({ asked: id });
    };
    const drainNode = drain(NODE_ID, 'node');
    const drainWorker = drain(WORKER_ID, 'worker');
    app.post<{ Params: { id: string } }>('/admin/nodes/:id/drain', (r, reply) =>
      drainNode(r.params.id, r.headers.accept, reply),
    );
    app.post<{ Params: { id: string } }>('/admin/workers/:id/drain', (r, reply) =>
      drainWorker(r.params.id, r.headers.accept, reply),
    );
  };
}

const drainForm = (path: string) => `<form method="post" action="${path}"><button>Drain</button></form>`;
