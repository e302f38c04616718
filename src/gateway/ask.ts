/**
 * Asks another node whether a tab is really there (SE4): request and answer over the nodes' own channels, with a limit.
 * No answer means that the tab is not there, which is right for a node that was killed.
 */
import type { Chance, EventBus, Subscription } from '../domain/ports.js';
import type { AttachmentId, NodeId, SessionId } from '../protocol/ids.js';
import type { SessionTable } from './session-table.js';

const PROBE_MS = 1_000;
/** Less than the asker waits, so that a late answer is not lost on the way. */
const PING_MS = 800;

type Message =
  | {
      readonly v: 1;
      readonly type: 'probe';
      readonly id: string;
      readonly from: NodeId;
      readonly sessionId: SessionId;
      readonly attachmentId: AttachmentId;
    }
  | { readonly v: 1; readonly type: 'answer'; readonly id: string; readonly alive: boolean };

export interface Asker {
  /** @throws AppError REDIS_UNAVAILABLE */
  start(): Promise<void>;
  /** Whether the connection with this attachment answers, within 1 s. */
  probe(nodeId: NodeId, sessionId: SessionId, attachmentId: AttachmentId): Promise<boolean>;
  close(): Promise<void>;
}

export function createAsker(ports: {
  readonly nodeId: NodeId;
  readonly bus: EventBus;
  readonly table: Pick<SessionTable, 'find'>;
  readonly chance: Chance;
}): Asker {
  const { nodeId, bus, table, chance } = ports;
  const waiting = new Map<string, (alive: boolean) => void>();
  let subscription: Subscription | undefined;

  async function isAlive(sessionId: SessionId, attachmentId: AttachmentId): Promise<boolean> {
    const holding = table.find(sessionId);
    if (holding === undefined || holding.session.attachmentId !== attachmentId) return false;
    return holding.connection.answersPing(PING_MS);
  }

  function onMessage(text: string): void {
    let message: Message;
    try {
      message = JSON.parse(text) as Message;
    } catch {
      return; // Of another version: not for us.
    }
    if (message.type === 'answer') waiting.get(message.id)?.(message.alive);
    if (message.type !== 'probe') return;
    const { id, from, sessionId, attachmentId } = message;
    void isAlive(sessionId, attachmentId).then((alive) =>
      // A lost answer is taken for a tab that is not there; the asker decides with what it has.
      bus.ask(from, JSON.stringify({ v: 1, type: 'answer', id, alive } satisfies Message)).catch(() => undefined),
    );
  }

  return {
    async start() {
      subscription = await bus.subscribeAsk(nodeId, onMessage);
    },

    async probe(asked, sessionId, attachmentId) {
      if (asked === nodeId) return isAlive(sessionId, attachmentId);
      const id = Buffer.from(chance.bytes(12)).toString('hex');
      const answer = new Promise<boolean>((resolve) => {
        const timer = setTimeout(() => done(false), PROBE_MS);
        const done = (alive: boolean) => {
          clearTimeout(timer);
          waiting.delete(id);
          resolve(alive);
        };
        waiting.set(id, done);
      });
      const message: Message = { v: 1, type: 'probe', id, from: nodeId, sessionId, attachmentId };
      try {
        await bus.ask(asked, JSON.stringify(message));
      } catch (error) {
        waiting.get(id)?.(false);
        throw error;
      }
      return answer;
    },

    async close() {
      for (const done of [...waiting.values()]) done(false);
      await subscription?.close();
    },
  };
}
