/**
 * Every fence in the scripts, twice: with it the intruder is refused, and with its line taken out the same intruder gets
 * through. So each of these lines is known to be the one that holds.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { HeldSession } from '../../src/domain/ports.js';
import type { ClaimId, CommandId } from '../../src/protocol/ids.js';
import { createQuotas } from '../../src/redis/quotas.js';
import { createReassertion } from '../../src/redis/reassertion.js';
import { allFences, scriptsWithout } from '../support/fences.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import {
  createStores,
  newAttachmentId,
  newClaimId,
  newCommandId,
  newNodeId,
  newWorkerId,
  type OpenTab,
  openTab,
  outputEntry,
  placeOf,
  type Stores,
  submit,
} from '../support/stores.js';

interface Fence {
  /** `script: name`, as marked in the script. */
  readonly fence: string;
  readonly rule: string;
  readonly says: string;
  /** What the intruder does, on stores of its own; what comes of it. */
  intrude(stores: Stores): Promise<unknown>;
  /** What must come of it while the fence stands. */
  readonly refused: unknown;
}

const PAGE_BYTES = 10_000;
/** For those that try a limit; the others submit one command. */
const LIMITS = { session: 1 };

/** A command of ann's that runs and has printed one line. */
async function running(stores: Stores, spec: Parameters<typeof submit>[2] = {}) {
  const tab = await openTab(stores);
  const { commandId } = await submit(stores, { tab }, spec);
  const claimId = newClaimId();
  await stores.commands.claim(commandId, claimId, newWorkerId(), 'group');
  await append(stores, tab, commandId, claimId, 1);
  return { tab, commandId, claimId };
}

/** The second command of a session that may run one. */
async function heldBack(stores: Stores) {
  const tab = await openTab(stores);
  await submit(stores, { tab });
  const { commandId, answer } = await submit(stores, { tab });
  return { commandId, held: 'held' in answer ? answer.held : undefined };
}

const append = (
  stores: Stores,
  owner: OpenTab | null,
  commandId: CommandId,
  claimId: ClaimId,
  seq: number,
  ended = false,
) =>
  stores.commands.append({
    commandId,
    claimId,
    ownerSessionId: owner?.sessionId ?? null,
    entries: [outputEntry(commandId, seq, 'line\n', (seq - 1) * 5)],
    ...(ended ? { outcome: OUTCOME } : {}),
  });

const writeAs = (stores: Stores, commandId: CommandId, { sessionId, attachmentId }: OpenTab) =>
  stores.commands.write({
    commandId,
    writer: { type: 'owner', sessionId, attachmentId },
    offset: 0,
    bytes: new Uint8Array([1]),
    eof: false,
  });

const OUTCOME = {
  reason: 'exited',
  code: 0,
  signal: null,
  durationMs: 1,
  outputBytes: 5,
  tail: '',
  leftovers: 0,
} as const;

const ackedAfter = async (
  stores: Stores,
  commandId: CommandId,
  by: OpenTab,
  seq: number,
  attachment = by.attachmentId,
) => {
  await stores.commands.ack(by.sessionId, attachment, new Map([[commandId, seq]]));
  return (await stores.commands.get(commandId))?.snapshot.ackedSeq;
};
const attachAgain = (stores: Stores, tab: OpenTab, given: Partial<Parameters<Stores['sessions']['attach']>[0]> = {}) =>
  stores.sessions.attach({
    sessionId: tab.sessionId,
    attachmentId: newAttachmentId(),
    nodeId: newNodeId(),
    principal: tab.place.principal,
    resumeTokenHash: tab.resumeTokenHash,
    pageNonce: '',
    probedAttachmentId: '',
    ...given,
  });
const stateOf = async (stores: Stores, tab: OpenTab) => (await stores.sessions.check(tab.sessionId, [])).state;
const type = (answer: { readonly type: string }) => answer.type;

/** Later than every attachment that a test makes. */
const LATER = 9;
/** As a node does after a failover (R2). */
const sayAgain = async (stores: Stores, tab: OpenTab, given: Partial<HeldSession>) =>
  type(
    await createReassertion(stores).session({
      ...{ ...tab.place, ...tab, generation: 1, pageNonce: '', rev: 0, idleMs: 0 },
      ...given,
    }),
  );

const FENCES: readonly Fence[] = [
  {
    fence: 'attach: resume token',
    rule: 'SE2',
    says: 'a wrong resume token is denied',
    refused: 'denied',
    intrude: async (stores) => type(await attachAgain(stores, await openTab(stores), { resumeTokenHash: 'guessed' })),
  },
  {
    fence: 'attach: principal',
    rule: 'SE2',
    says: 'the right resume token with another principal is denied',
    refused: 'denied',
    intrude: async (stores) => type(await attachAgain(stores, await openTab(stores), { principal: 'bob' })),
  },
  {
    fence: 'attach: closed',
    rule: 'OW6',
    says: 'a closed session can not be attached',
    refused: 'gone',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      await stores.sessions.close(tab.sessionId, { type: 'attachment', attachmentId: tab.attachmentId });
      return type(await attachAgain(stores, tab));
    },
  },
  {
    fence: 'attach: duplicated tab',
    rule: 'SE4',
    says: 'another page is told to probe the first one',
    refused: 'probe',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      const first = newAttachmentId();
      await attachAgain(stores, tab, { attachmentId: first, pageNonce: 'first page' });
      return type(await attachAgain(stores, tab, { pageNonce: 'second page' }));
    },
  },
  {
    fence: 'detach: attachment',
    rule: 'SE1',
    says: 'the old connection’s end does not detach the new one',
    refused: 'live',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      await attachAgain(stores, tab);
      await stores.sessions.detach(tab.sessionId, tab.attachmentId);
      return stateOf(stores, tab);
    },
  },
  {
    fence: 'touch: attachment',
    rule: 'OW12',
    says: 'only the session’s own connection makes it the latest active',
    refused: 'second',
    intrude: async (stores) => {
      const first = await openTab(stores);
      await attachAgain(stores, first);
      const second = await openTab(stores);
      await stores.sessions.touch(first.sessionId, first.attachmentId);
      const { sessions } = await stores.sessions.list(placeOf(), 0, 1);
      return sessions[0]?.sessionId === second.sessionId ? 'second' : 'first';
    },
  },
  {
    fence: 'close: attachment',
    rule: 'SE1',
    says: 'a connection that lost the session can not close it',
    refused: 'live',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      await attachAgain(stores, tab);
      await stores.sessions.close(tab.sessionId, { type: 'attachment', attachmentId: tab.attachmentId });
      return stateOf(stores, tab);
    },
  },
  {
    fence: 'close: grace',
    rule: 'OW7',
    says: 'a grace that was over when the tab came back closes nothing',
    refused: 'live',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      await stores.sessions.close(tab.sessionId, { type: 'grace' });
      return stateOf(stores, tab);
    },
  },
  {
    fence: 'submit: origin',
    rule: 'OW5',
    says: 'a session of another principal is no origin',
    refused: 'origin_unknown',
    intrude: async (stores) => {
      const ann = await openTab(stores);
      return type((await submit(stores, { named: ann.sessionId }, {}, placeOf('bob'))).answer);
    },
  },
  {
    fence: 'submit: attachment',
    rule: 'SE1',
    says: 'a connection that lost the session runs nothing in its name',
    refused: 'superseded',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      await attachAgain(stores, tab);
      return type((await submit(stores, { tab })).answer);
    },
  },
  {
    fence: 'claim: claim',
    rule: 'CO2',
    says: 'the second attempt does not win what the first one has',
    refused: 'refused',
    intrude: async (stores) => {
      const { commandId } = await running(stores);
      return type(await stores.commands.claim(commandId, newClaimId(), newWorkerId(), 'group'));
    },
  },
  ...(['append', 'append-end'] as const).flatMap((script): Fence[] => {
    const ended = script === 'append-end';
    return [
      {
        fence: `${script}: claim`,
        rule: 'CO2',
        says: 'who does not hold the claim writes nothing',
        refused: 'claim_lost',
        intrude: async (stores) => {
          const { tab, commandId } = await running(stores);
          return type(await append(stores, tab, commandId, newClaimId(), 2, ended));
        },
      },
      {
        fence: `${script}: repeat`,
        rule: 'DE1',
        says: 'a call that is sent again changes nothing and is a success',
        refused: { type: 'appended', headSeq: 2 },
        intrude: async (stores) => {
          const { tab, commandId, claimId } = await running(stores);
          await append(stores, tab, commandId, claimId, 2, ended);
          return append(stores, tab, commandId, claimId, 2, ended);
        },
      },
      {
        fence: `${script}: owner`,
        rule: 'IS2',
        says: 'nothing is published to who is no longer the owner',
        refused: 'owner',
        intrude: async (stores) => {
          const { commandId, claimId } = await running(stores);
          const other = await openTab(stores, placeOf('bob'));
          return type(await append(stores, other, commandId, claimId, 2, ended));
        },
      },
      {
        fence: `${script}: order`,
        rule: 'DE1',
        says: 'an entry that would leave a hole is not appended',
        refused: { type: 'behind', headSeq: 1 },
        intrude: async (stores) => {
          const { tab, commandId, claimId } = await running(stores);
          return append(stores, tab, commandId, claimId, 3, ended);
        },
      },
    ];
  }),
  {
    fence: 'end-without-worker: claim',
    rule: 'CO3',
    says: 'a judge with an old picture does not end what another attempt runs',
    refused: 'refused',
    intrude: async (stores) => {
      const { commandId } = await running(stores);
      return type(await stores.commands.endWithoutWorker(commandId, newClaimId(), 'lost', 'Its worker died.'));
    },
  },
  {
    fence: '_turns: places',
    rule: 'CO11',
    says: 'a session has no more commands on their way than its limit',
    refused: 'session',
    intrude: async (stores) => (await heldBack(stores)).held,
  },
  {
    fence: 'claim: turn',
    rule: 'CO11',
    says: 'a command whose turn has not come is not started, whoever has a job for it',
    refused: 'refused',
    intrude: async (stores) => {
      const { commandId } = await heldBack(stores);
      return type(await stores.commands.claim(commandId, newClaimId(), newWorkerId(), 'group'));
    },
  },
  {
    fence: 'submit: parent',
    rule: 'OW10',
    says: 'another principal does not submit from inside the command',
    refused: 'origin_unknown',
    intrude: async (stores) => {
      const { commandId } = await running(stores);
      const place = placeOf('bob');
      return type((await submit(stores, { inside: commandId }, {}, place)).answer);
    },
  },
  {
    fence: 'submit: parent runs',
    rule: 'OW10',
    says: 'nothing is submitted from inside a command that is over',
    refused: 'origin_unknown',
    intrude: async (stores) => {
      const { tab, commandId, claimId } = await running(stores);
      await append(stores, tab, commandId, claimId, 2, true);
      return type((await submit(stores, { inside: commandId })).answer);
    },
  },
  {
    fence: '_writer: owner',
    rule: 'IS2',
    says: 'who does not own a command writes nothing to it',
    refused: 'not_owner',
    intrude: async (stores) => {
      const { commandId } = await running(stores, { stdin: 'pipe' });
      return type(await writeAs(stores, commandId, await openTab(stores)));
    },
  },
  {
    fence: '_writer: attachment',
    rule: 'SE1',
    says: 'a connection that lost the session writes nothing',
    refused: 'not_owner',
    intrude: async (stores) => {
      const { tab, commandId } = await running(stores, { stdin: 'pipe' });
      await attachAgain(stores, tab);
      return type(await writeAs(stores, commandId, tab));
    },
  },
  {
    fence: 'ack: owner',
    rule: 'DE6',
    says: 'who does not own a command acknowledges nothing of it',
    refused: 0,
    intrude: async (stores) => {
      const { commandId } = await running(stores);
      return ackedAfter(stores, commandId, await openTab(stores), 1);
    },
  },
  {
    fence: 'ack: attachment',
    rule: 'DE6',
    says: 'a late acknowledgement of an old connection is ignored',
    refused: 0,
    intrude: async (stores) => {
      const { tab, commandId } = await running(stores);
      return ackedAfter(stores, commandId, tab, 1, newAttachmentId());
    },
  },
  {
    fence: 'ack: acks only rise',
    rule: 'DE6',
    says: 'nothing beyond the head is acknowledged',
    refused: 0,
    intrude: async (stores) => {
      const { tab, commandId } = await running(stores);
      return ackedAfter(stores, commandId, tab, 99);
    },
  },
  {
    fence: 'adopt: principal',
    rule: 'IS1',
    says: 'what one principal left is not adopted by another',
    refused: 'unknown',
    intrude: async (stores) => {
      const { commandId } = await submit(stores, 'none');
      const bob = await openTab(stores, placeOf('bob'));
      return type(await stores.commands.adopt(commandId, bob.sessionId, bob.attachmentId));
    },
  },
  {
    fence: 'adopt: attachment',
    rule: 'SE1',
    says: 'a connection that lost the session adopts nothing',
    refused: 'superseded',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      const { commandId } = await submit(stores, 'none');
      return type(await stores.commands.adopt(commandId, tab.sessionId, newAttachmentId()));
    },
  },
  {
    fence: 'read-log: owner',
    rule: 'IS2',
    says: 'a session that does not own the command reads nothing as its owner',
    refused: 'not_owner',
    intrude: async (stores) => {
      const { commandId } = await running(stores);
      const other = await openTab(stores);
      return type(await stores.commands.readLog(commandId, { type: 'owner', ...other }, 0, PAGE_BYTES));
    },
  },
  {
    fence: 'read-log: attachment',
    rule: 'DE4',
    says: 'a node whose connection lost the session reads nothing for it',
    refused: 'not_owner',
    intrude: async (stores) => {
      const { tab, commandId } = await running(stores);
      await attachAgain(stores, tab);
      return type(await stores.commands.readLog(commandId, { type: 'owner', ...tab }, 0, PAGE_BYTES));
    },
  },
];

const RESTORED: readonly Fence[] = [
  {
    fence: 'restore-session: identity',
    rule: 'R2',
    says: 'who says a session again without its resume token does not get it',
    refused: 'superseded',
    intrude: async (stores) =>
      sayAgain(stores, await openTab(stores), { resumeTokenHash: 'guessed', generation: LATER }),
  },
  {
    fence: 'restore-session: closed',
    rule: 'OW6',
    says: 'a node that says a closed session again does not open it',
    refused: 'gone',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      await stores.sessions.close(tab.sessionId, { type: 'attachment', attachmentId: tab.attachmentId });
      return sayAgain(stores, tab, { generation: LATER });
    },
  },
  {
    fence: 'restore-session: later attachment',
    rule: 'SE1',
    says: 'a node that lost the session to a later attachment does not take it back',
    refused: 'superseded',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      await attachAgain(stores, tab);
      return sayAgain(stores, tab, { generation: 1 });
    },
  },
  {
    fence: 'restore-session: same generation',
    rule: 'SE1',
    says: 'of two attachments with one number, which a lost write makes possible, the stored one stays',
    refused: 'superseded',
    intrude: async (stores) => {
      const tab = await openTab(stores);
      return sayAgain(stores, tab, { attachmentId: newAttachmentId(), generation: 1 });
    },
  },
  {
    fence: 'restore-command: claim',
    rule: 'CO2',
    says: 'a worker that says its command again does not take it from the attempt that has it now',
    refused: 'lost',
    intrude: async (stores) => {
      const { commandId } = await running(stores);
      const reassertion = createReassertion(stores);
      const record = await reassertion.recordOf(commandId);
      return type(await reassertion.command({ commandId, claimId: newClaimId(), ownerSessionId: null, record }));
    },
  },
];
const QUOTAS: Fence[] = [
  {
    fence: 'claim: version',
    rule: 'V1',
    says: 'a worker leaves a command alone whose record is newer than it understands',
    refused: 'newer',
    intrude: async (stores) => {
      const { commandId } = await submit(stores, { tab: await openTab(stores) });
      await stores.redis.hset(stores.keys.command(commandId), 'v', 2);
      const claim = await stores.commands.claim(commandId, newClaimId(), newWorkerId(), 'group');
      return claim.type === 'refused' ? claim.state : claim.type;
    },
  },
  {
    fence: 'quota: room',
    rule: 'CO12',
    says: 'who is at the limit gets no further place',
    refused: [true, true, false],
    intrude: async (stores) => {
      const quotas = createQuotas({ ...stores, retentionMs: 60_000 });
      const ids = [1, 2, 3].map(() => newCommandId(placeOf()));
      const take = (id: CommandId) => quotas.roomForCommand({ tenant: 'fenced' }, id, 2);
      return [await take(ids[0] as CommandId), await take(ids[1] as CommandId), await take(ids[2] as CommandId)];
    },
  },
];
const ALL = [...FENCES, ...RESTORED, ...QUOTAS];

describe('fences', () => {
  let redis: TestRedis;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis?.[Symbol.asyncDispose]());

  it('every fence that is marked in a script is tried here', async () => {
    expect(ALL.map(({ fence }) => fence).sort()).toEqual((await allFences()).sort());
  });

  describe.each(ALL)('$fence', ({ fence, rule, says, refused, intrude }) => {
    it(`[${rule}] ${says}`, async () => {
      await using stores = await createStores(redis.url, { limits: LIMITS });
      expect(await intrude(stores)).toEqual(refused);
    });

    it(`[${rule}] twin: with the fence taken out the intruder gets through`, async () => {
      await using scripts = await scriptsWithout(fence);
      await using stores = await createStores(redis.url, { limits: LIMITS, scriptsFolder: scripts.folder });
      expect(await intrude(stores).catch((error) => error)).not.toEqual(refused);
    });
  });
});
