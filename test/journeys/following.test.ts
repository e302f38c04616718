/** One command followed through all processes: as spans of one trace, and as lines of their logs by its id. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';
import { startCollector } from '../support/trace-collector.js';
import { until } from '../support/wait.js';

let collector: Awaited<ReturnType<typeof startCollector>>;
let cluster: Cluster;
beforeAll(async () => {
  collector = await startCollector();
  cluster = await startCluster({
    nodes: 2,
    workers: 1,
    env: {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_BSP_SCHEDULE_DELAY: '100',
      HOMING_MAX_RUNNING_PER_SESSION: '1',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test',
    },
  });
});
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  await collector?.[Symbol.asyncDispose]();
});

describe('a command that was submitted at one node, run by a worker and delivered by another node', () => {
  it('is one trace: request, queue, run and delivery, each under what caused it', async () => {
    const tab = await cluster.tab(0, { conversation: 'traced' });
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
    const { status, json } = await cluster.http('POST', '/v1/commands', {
      node: 1,
      headers: { traceparent: `00-${traceId}-00f067aa0ba902b7-01` },
      body: { conversation: 'traced', originSessionId: tab.sessionId, argv: ['sh', '-c', 'echo traced; exit 3'] },
    });
    expect(status).toBe(202);
    const { commandId } = json;
    await tab.ended(commandId);
    const mine = () => collector.spans.filter((span) => span.traceId === traceId);
    await expect.poll(() => mine().length).toBe(5);

    const named = (name: string) => mine().filter((span) => span.name === name);
    const [submit] = named('homing submit');
    const [queue] = named('homing queue');
    const [run] = named('homing run');
    const deliveries = named('homing deliver');
    expect(submit).toMatchObject({
      parentSpanId: '00f067aa0ba902b7',
      attributes: { 'homing.command.id': commandId, 'homing.pool': 'default' },
      resource: { 'service.instance.id': cluster.nodes[1]?.id, 'homing.program': 'gateway' },
    });
    expect(queue).toMatchObject({ parentSpanId: submit?.spanId });
    expect(run).toMatchObject({
      parentSpanId: submit?.spanId,
      attributes: { 'homing.worker.id': cluster.workers[0]?.id, 'homing.reason': 'exited', 'homing.exit_code': 3 },
      resource: { 'service.name': 'homing', 'deployment.environment.name': 'test' },
    });
    expect(deliveries.map(({ attributes }) => attributes['homing.entry']).sort()).toEqual(['ended', 'started']);
    for (const delivery of deliveries) {
      expect(delivery).toMatchObject({
        parentSpanId: run?.spanId,
        attributes: { 'homing.session.id': tab.sessionId },
        resource: { 'service.instance.id': cluster.nodes[0]?.id },
      });
      expect(delivery.endMs).toBeGreaterThanOrEqual(delivery.startMs);
    }
    // Nothing of what was run is in a span.
    expect(JSON.stringify(mine())).not.toMatch(/traced; exit|echo/);
  });

  it('[CO11] is one trace also where its job is added later than it was submitted', async () => {
    const tab = await cluster.tab(0, { conversation: 'later' });
    const traceId = '5bf92f3577b34da6a3ce929d0e0e4737';
    const first = await tab.run({ argv: ['sleep', '0.3'] });
    const { json } = await cluster.http('POST', '/v1/commands', {
      headers: { traceparent: `00-${traceId}-00f067aa0ba902b7-01` },
      body: { conversation: 'later', originSessionId: tab.sessionId, argv: ['true'] },
    });
    expect(json).toMatchObject({ held: 'session' });
    await tab.ended(first);
    await tab.ended(json.commandId);
    const names = () => collector.spans.filter((span) => span.traceId === traceId).map(({ name }) => name);
    await expect
      .poll(() => [...new Set(names())].sort())
      .toEqual(['homing deliver', 'homing queue', 'homing run', 'homing submit']);
  });

  it('[OW2] is found in every log by its id, from the submit to the reason of its end and the tab that got it', async () => {
    const conversation = 'logged';
    const [a, b] = [await cluster.tab(0, { conversation }), await cluster.tab(1, { conversation })];
    const commandId = await a.run({ argv: ['sh', '-c', 'sleep 0.3; exec sleep 60'] });
    await a.waitFor('the start', ({ method }) => method === 'command.started');
    await a.close();
    await b.waitFor('the move', ({ method, params }) => method === 'command.owner' && params.commandId === commandId);
    await b.rpc('command.kill', { commandId, graceMs: 0 });
    await b.ended(commandId);

    const lines = () =>
      [...cluster.nodes, ...cluster.workers].flatMap(({ log, id }) =>
        log
          .split('\n')
          .filter((line) => line.includes(commandId) && line.startsWith('{'))
          .map((line) => ({ process: id, ...JSON.parse(line) })),
      );
    const told = (msg: string) => lines().find((line) => line.msg === msg);
    // Each process writes for itself.
    for (const msg of ['the end of a command was sent to its owner', 'command is over']) {
      await until(`"${msg}" in a log`, () => told(msg) !== undefined);
    }
    const [first, second] = cluster.nodes.map(({ id }) => id);
    const worker = cluster.workers[0]?.id;
    expect(told('a command is queued')).toMatchObject({
      ...{ process: first, nodeId: first, originSessionId: a.sessionId, ownerSessionId: a.sessionId, pool: 'default' },
    });
    expect(told('command runs')).toMatchObject({ process: worker, workerId: worker, sessionId: a.sessionId });
    expect(told('a command came to a session')).toMatchObject({
      ...{ process: second, nodeId: second, sessionId: b.sessionId, why: 'owner_closed' },
    });
    expect(told('a command is to end')).toMatchObject({ process: second, reason: 'cancelled' });
    expect(told('command is over')).toMatchObject({ process: worker, reason: 'cancelled', sessionId: b.sessionId });
    expect(told('the end of a command was sent to its owner')).toMatchObject({
      ...{ process: second, sessionId: b.sessionId },
    });
    const order = [
      'a command is queued',
      'command runs',
      'a command came to a session',
      'a command is to end',
      'command is over',
    ];
    const times = order.map((msg) => Date.parse(told(msg)?.time));
    expect([...times].sort((x, y) => x - y)).toEqual(times);
    for (const line of lines()) expect(line).toMatchObject({ level: expect.any(String), msg: expect.any(String) });
  });
});
