/** Logs over HTTP: as they are now, and as they grow. */
import { Readable } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import { AppError } from '../errors.js';
import { httpRoutes } from '../protocol/http.js';
import type { CommandId } from '../protocol/ids.js';
import { findReadable, requireScope } from './access.js';
import { commandEvents } from './command-events.js';
import type { Node } from './handlers/context.js';
import { claimsOf, parse } from './http-parse.js';
import { beginView, entryOf, readView } from './log-pages.js';
import { createRawLog } from './raw-log.js';

const PAGE_BYTES = 128 * 1024;

export function addLogRoutes(app: FastifyInstance, node: Node): void {
  const { ports, streams } = node;
  const { commands } = ports;

  app.get('/v1/commands/:id/log', async (request, reply) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'read');
    const { params, query } = httpRoutes.readLog;
    const { id, record } = await findReadable(commands, claims, parse(params, request.params).id);
    const { fromSeq, tailBytes, format, gaps, download } = parse(query, request.query);
    const tail = fromSeq === undefined && tailBytes !== undefined ? await commands.tailSeq(id, tailBytes) : 0;
    const afterSeq = Math.max(0, fromSeq === undefined ? tail : fromSeq - 1);
    const fromByte =
      fromSeq === undefined && tailBytes !== undefined ? Math.max(0, record.snapshot.outputBytes - tailBytes) : 0;
    if (download) {
      const name = `${id}.${format === 'text' ? 'log' : 'jsonl'}`;
      void reply.header('content-disposition', `attachment; filename="${name}"`);
    }
    // Stopped by itself when the caller goes away: a page is only read when the one before was taken.
    const pages = pagesOf(id, afterSeq);
    const body = format === 'text' ? textOf(pages, fromByte, gaps === 'state') : linesOf(pages);
    return reply
      .header('x-content-type-options', 'nosniff')
      .header('cache-control', 'no-store')
      .type(format === 'text' ? 'text/plain; charset=utf-8' : 'application/jsonl; charset=utf-8')
      .send(Readable.from(body, { objectMode: false }));
  });

  /** The log up to its head at the time of each page; it does not wait for more. */
  async function* pagesOf(id: CommandId, afterSeq: number): AsyncGenerator<readonly string[]> {
    let state = beginView(afterSeq);
    for (;;) {
      const page = await readView(commands, id, state, PAGE_BYTES, ports.now());
      if (page === undefined || page.texts.length === 0) return;
      yield page.texts;
      state = page.state;
      if (page.done || state.sentSeq >= page.headSeq) return;
    }
  }

  app.get('/v1/commands/:id/events', async (request, reply) => {
    const claims = await claimsOf(node, request);
    requireScope(claims, 'read');
    const { params, query, headers } = httpRoutes.followCommand;
    const { id, record } = await findReadable(commands, claims, parse(params, request.params).id);
    const { fromSeq = 1 } = parse(query, request.query);
    const { 'last-event-id': lastEventId } = parse(headers, request.headers);
    const afterSeq = lastEventId === undefined ? Math.max(0, fromSeq - 1) : seqOf(lastEventId);
    const { state, headSeq } = record.snapshot;
    // What an EventSource takes as "do not come back".
    if (state === 'ended' && afterSeq >= headSeq) return reply.code(204).send();
    const body = streams.open(claims, (pace) => commandEvents({ commands, now: ports.now }, id, afterSeq, pace));
    return streams.headers(reply).send(body);
  });
}

/** An empty one is what an EventSource sends that saw no event with an id. @throws AppError INVALID_PARAMS */
function seqOf(lastEventId: string): number {
  if (/^[0-9]{0,15}$/.test(lastEventId)) return Number(lastEventId);
  throw new AppError('INVALID_PARAMS', 'Last-Event-ID: must be the id of an event of this command, a whole number', {
    field: 'last-event-id',
  });
}

async function* linesOf(pages: AsyncIterable<readonly string[]>): AsyncGenerator<string> {
  for await (const texts of pages) yield texts.map((text) => `${JSON.stringify(entryOf(text))}\n`).join('');
}

async function* textOf(
  pages: AsyncIterable<readonly string[]>,
  fromByte: number,
  stateGaps: boolean,
): AsyncGenerator<Uint8Array> {
  const raw = createRawLog({ fromByte, stateGaps });
  for await (const texts of pages) {
    const bytes = raw.add(texts);
    if (bytes.length > 0) yield bytes;
  }
}
