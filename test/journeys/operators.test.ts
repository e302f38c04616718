/** What operators see and may do, on real processes: figures, pages, the board, and draining. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, startCluster } from '../support/cluster.js';

let cluster: Cluster;
const METRICS = 'operators-metrics-token';
beforeAll(async () => {
  cluster = await startCluster({
    nodes: 2,
    workers: 1,
    env: { HOMING_METRICS_TOKEN: METRICS },
    workerEnv: () => ({ HOMING_WORKER_OPS_PORT: '0' }),
  });
});
afterAll(() => cluster[Symbol.asyncDispose]());

const ask = (path: string, init: RequestInit & { token?: string } = {}) =>
  fetch(`${cluster.nodes[0]?.opsUrl}${path}`, {
    ...init,
    headers: { authorization: `Bearer ${init.token ?? cluster.adminToken}`, ...init.headers },
  });
const json = async (path: string) => (await ask(path)).json();

describe('the ops address', () => {
  it('[IS1] shows nothing of /admin without the admin token, on any path below it', async () => {
    for (const path of ['/admin', '/admin/queues', '/admin/queues/api/queues', '/admin/nodes/x']) {
      expect((await ask(path, { token: 'wrong' })).status, path).toBe(401);
      expect((await fetch(`${cluster.nodes[0]?.opsUrl}${path}`)).status, path).toBe(401);
    }
    const basic = `Basic ${Buffer.from(`ops:${cluster.adminToken}`).toString('base64')}`;
    expect((await ask('/admin', { headers: { authorization: basic } })).status).toBe(200);
  });

  it('names every node and worker, the sessions of a node, and what a session owns', async () => {
    const tab = await cluster.tab(0);
    const commandId = await tab.run({ argv: ['sleep', '30'] });
    await expect.poll(async () => (await json('/admin')).workers[0]?.commands).toBe(1);
    const { nodes, workers } = await json('/admin');
    expect(nodes).toHaveLength(2);
    expect(workers[0]).toMatchObject({ pool: 'default', draining: false });
    const { sessions } = await json(`/admin/nodes/${cluster.nodes[0]?.id}`);
    expect(sessions).toEqual([expect.objectContaining({ sessionId: tab.sessionId, state: 'live', owned: 1 })]);
    const { commands } = await json(`/admin/sessions/${tab.sessionId}`);
    expect(commands[0]).toMatchObject({ commandId, originSessionId: tab.sessionId, ownerSessionId: tab.sessionId });
    const page = await ask('/admin', { headers: { accept: 'text/html' } });
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(await page.text()).toContain(workers[0].workerId);
  });

  it('[OW2] tells every move of the owner of a command, with the reason', async () => {
    const conversation = 'moves';
    const [a, b] = [await cluster.tab(0, { conversation }), await cluster.tab(1, { conversation })];
    const commandId = await a.run({ argv: ['sleep', '30'] });
    await a.close();
    const found = await json(`/admin/commands/${commandId}`);
    const [first, second] = cluster.nodes.map(({ id }) => id);
    expect(found.trace).toEqual([
      expect.objectContaining({ what: 'attach', from: a.sessionId, to: first, why: 'generation 1' }),
      expect.objectContaining({ what: 'attach', from: b.sessionId, to: second, why: 'generation 1' }),
      expect.objectContaining({ what: 'move', from: a.sessionId, to: b.sessionId, why: 'owner_closed' }),
    ]);
    expect((await ask('/admin/commands/cmd_x')).status).toBe(404);
  });

  it('[CO2] the board shows jobs with their origin, and its API changes nothing', async () => {
    const tab = await cluster.tab(0, { conversation: 'board' });
    const commandId = await tab.run({ argv: ['echo', 'on the board'] });
    await tab.ended(commandId);
    const find = async () => {
      const { queues } = await json(
        '/admin/queues/api/queues?activeQueue=default&status=completed&page=1&jobsPerPage=50',
      );
      return queues
        ?.flatMap((queue: { jobs: { id: string }[] }) => queue.jobs)
        .find((job: { id: string }) => job.id === commandId);
    };
    await expect.poll(find).toBeDefined();
    const job = await find();
    expect(job.name).toContain('echo');
    expect(job.data).toMatchObject({ originSessionId: tab.sessionId, conversation: 'board' });
    const board = '/admin/queues/api/queues/default';
    for (const [method, path] of [
      ['PUT', `${board}/${commandId}/retry/completed`],
      ['PUT', `${board}/${commandId}/clean`],
      ['PUT', `${board}/clean/completed`],
      ['PUT', `${board}/pause`],
      ['PUT', '/admin/queues/api/queues/pause'],
      ['POST', `${board}/add`],
    ] as const) {
      expect((await ask(path, { method })).status, path).toBe(405);
    }
    expect(await find()).toBeDefined();
  });

  it('has the figures of the catalogue, and the depth of each pool', async () => {
    const text = async () => (await ask('/metrics')).text();
    await expect.poll(text).toContain('homing_pool_workers{pool="default"} 1');
    const figures = await text();
    expect(figures).toContain('homing_misdelivered_total 0');
    expect(figures).toContain('homing_queue_depth{pool="default"} 0');
    expect(figures).toContain('homing_redis_noeviction 1');
    expect((await ask('/metrics', { token: 'wrong' })).status).toBe(401);
  });

  it('a worker has an address of its own that says whether it lives, takes jobs, and how it is', async () => {
    const [worker] = cluster.workers;
    const door = (path: string, init: RequestInit = {}) => fetch(`${worker?.opsUrl}${path}`, init);
    expect(await (await door('/livez')).json()).toMatchObject({ status: 'ok', workerId: worker?.id });
    expect(await (await door('/readyz')).json()).toEqual({ status: 'ok', checks: { redis: 'ok', jobs: 'ok' } });
    expect((await door('/metrics')).status).toBe(401);
    const headers = { authorization: `Bearer ${METRICS}` };
    const figures = await (await door('/metrics', { headers })).text();
    expect(figures).toContain('# TYPE homing_command_spawn_seconds histogram');
    expect(figures).toContain('homing_spool_bytes 0');
    expect(figures).toContain('homing_claims_lost_total 0');
    // Nothing can be changed there, and nothing else is there.
    expect((await door('/metrics', { method: 'POST', headers })).status).toBe(405);
    expect((await door('/admin', { headers })).status).toBe(404);
    expect((await door('/livez', { headers: { origin: 'https://elsewhere.example' } })).status).toBe(403);
  });

  it('measures the way of a command, and what is kept of all', async () => {
    const tab = await cluster.tab(0, { conversation: 'measured' });
    const commandId = await tab.run({ script: 'printf %1000s; exec sleep 60' });
    await tab.waitFor('output', ({ method, params }) => method === 'command.output' && params.commandId === commandId);
    await tab.rpc('command.kill', { commandId });
    await tab.ended(commandId);
    expect(await cluster.metric(0, 'homing_delivery_seconds_count')).toBeGreaterThan(0);
    expect(await cluster.metric(0, 'homing_attaches_total')).toBeGreaterThan(0);
    const headers = { authorization: `Bearer ${METRICS}` };
    const text = async () => (await fetch(`${cluster.workers[0]?.opsUrl}/metrics`, { headers })).text();
    await expect.poll(text).toContain('homing_commands_killed_total{reason="cancelled"}');
    const figures = await text();
    for (const name of ['wait', 'spawn', 'run']) {
      expect(
        Number(new RegExp(`homing_command_${name}_seconds_count (\\d+)`).exec(figures)?.[1]),
        name,
      ).toBeGreaterThan(0);
    }
    // Whoever leads walks over all records.
    const retained = async () =>
      Math.max(
        await cluster.metric(0, 'homing_retained_bytes'),
        await cluster.metric(1, 'homing_retained_bytes'),
        Number(/homing_retained_bytes (\d+)/.exec(await text())?.[1] ?? 0),
      );
    await expect.poll(retained).toBeGreaterThan(1_000);
  });

  it('[SE6] drains a node and a worker on request: both end by themselves with status 0', async () => {
    const [, node] = cluster.nodes;
    const [worker] = cluster.workers;
    const tab = await cluster.tab(1);
    expect((await ask(`/admin/nodes/${node?.id}/drain`, { method: 'POST' })).status).toBe(202);
    await expect.poll(() => node?.exitCode).toBe(0);
    await tab.waitFor('session.draining', (arrival) => arrival.method === 'session.draining');
    expect((await ask(`/admin/workers/${worker?.id}/drain`, { method: 'POST' })).status).toBe(202);
    await expect.poll(() => worker?.exitCode).toBe(0);
    const foreign = { origin: 'https://elsewhere.example' };
    const forged = await ask(`/admin/nodes/${cluster.nodes[0]?.id}/drain`, { method: 'POST', headers: foreign });
    expect(forged.status).toBe(403);
  });
});
