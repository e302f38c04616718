/** From a parsed spec to a stored, queued command; the same for every door (CO1, FAULTS Q2, S2). */
import { createHash } from 'node:crypto';
import { describeJob } from '../domain/job.js';
import type {
  CommandStore,
  Place,
  Presence,
  QueueProducer,
  SecretBox,
  SubmitOrigin,
  SubmitResult,
} from '../domain/ports.js';
import { unsupportedField } from '../domain/supported.js';
import { AppError, messageOf } from '../errors.js';
import { type CommandId, makeCommandId } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';
import type { CommandSpec } from '../protocol/methods.js';
import type { Claims } from '../protocol/token.js';
import { requireScope } from './access.js';
import type { GatewayPorts } from './options.js';
import { type PositionPorts, withPosition } from './position.js';

export interface SubmitPorts
  extends Pick<GatewayPorts, 'log' | 'meter' | 'chance' | 'secrets' | 'patterns' | 'traces'> {
  readonly commands: CommandStore;
  readonly presence: Presence;
  readonly queue: QueueProducer;
  readonly allowWebhook?: GatewayPorts['allowWebhook'];
}

/** A queued command is looked at for the first time after this and its own delay, or when it may wait no longer. */
const FIRST_CHECK_MS = 5_000;

/** JSON with sorted keys, so that equal values have equal texts. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, member]) => member !== undefined)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, canonical(member)]),
  );
}

const sha256 = (...parts: readonly string[]) => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(`${Buffer.byteLength(part)}:`).update(part);
  return hash.digest();
};

/** With a key the id is derived, so a retry finds the first submit even when its record was lost (CO1). */
export function commandIdFor(place: Place, idempotencyKey: string | undefined, chance: SubmitPorts['chance']) {
  const bytes =
    idempotencyKey === undefined
      ? chance.bytes(16)
      : sha256(place.tenant, place.conversation, place.principal, idempotencyKey);
  return makeCommandId(place.tag, bytes);
}

/**
 * What makes two submits the same: the spec, and the origin where the caller named one. The session of a connection is
 * left out: a page that lost its session and retries over a new one asks for the same command.
 */
function specHashOf(spec: object, origin: SubmitOrigin): string {
  const named = origin.type === 'named' ? origin.sessionId : origin.type === 'inherited' ? origin.parentCommandId : '';
  return sha256(JSON.stringify(canonical(spec)), named).toString('hex');
}

/** @throws AppError FORBIDDEN, POOL_UNKNOWN, INVALID_PARAMS and what the workers do not offer */
export function checkSpec(claims: Claims, spec: CommandSpec): void {
  requireScope(claims, 'run');
  if (!claims.pools.includes(spec.pool)) {
    throw new AppError('POOL_UNKNOWN', `pool: the token does not allow "${spec.pool}"`, { field: 'pool' });
  }
  const unsupported = unsupportedField(spec);
  if (unsupported !== undefined) {
    throw new AppError(unsupported.code, unsupported.message, { field: unsupported.field });
  }
}

/** @throws AppError PATTERN_INVALID */
function checkPatterns(patterns: SubmitPorts['patterns'], { notify }: Pick<CommandSpec, 'notify'>): void {
  for (const [i, asked] of (notify?.watch ?? []).entries()) {
    const compiled = patterns.compile(asked);
    if (compiled.ok) continue;
    const field = `notify.watch.${i}.pattern`;
    throw new AppError('PATTERN_INVALID', `${field}: ${compiled.error}`, { field });
  }
}

/** @throws AppError INVALID_PARAMS, FORBIDDEN */
function checkWebhook(allow: GatewayPorts['allowWebhook'], address: string | undefined): void {
  if (address === undefined) return;
  const field = 'notify.webhook';
  if (allow === undefined) {
    throw new AppError('INVALID_PARAMS', `${field}: webhooks are not allowed here (HOMING_WEBHOOK_ALLOW is not set)`, {
      field,
    });
  }
  if (allow(address)) return;
  throw new AppError('FORBIDDEN', `${field}: this address is not among those that HOMING_WEBHOOK_ALLOW names`, {
    field,
  });
}

/** @throws AppError SECRETS_UNAVAILABLE */
function sealSecrets(box: SecretBox | undefined, commandId: CommandId, secrets: CommandSpec['secrets']) {
  if (secrets === undefined || Object.keys(secrets).length === 0) return undefined;
  if (box === undefined) {
    throw new AppError('SECRETS_UNAVAILABLE', 'secrets: HOMING_SECRET_KEY is not set here, so they could not be kept', {
      field: 'secrets',
    });
  }
  return { text: box.seal(commandId, secrets), fingerprint: box.fingerprint(secrets) };
}

/** What a door answers: a command that waits says where it stands. */
export async function answerTo(
  ports: PositionPorts,
  { tenant }: Place,
  commandId: CommandId,
  { pool }: Pick<CommandSpec, 'pool'>,
  { state, held, originSessionId, repeated }: Accepted,
) {
  const { position } = await withPosition(ports, tenant, { commandId, state, held, pool, originSessionId });
  return {
    ...{ commandId, state, repeated },
    ...(held === undefined ? {} : { held }),
    ...(position === undefined ? {} : { position }),
  };
}

export interface Submission {
  readonly place: Place;
  readonly commandId: CommandId;
  readonly spec: CommandSpec;
  readonly origin: SubmitOrigin;
  /** Of the request, where it has one. */
  readonly traceparent?: string | undefined;
}

export type Accepted = Extract<SubmitResult, { type: 'accepted' }>;

/**
 * Stores and queues. Repeating it with the same ids changes nothing.
 * @throws AppError IDEMPOTENCY_CONFLICT, ORIGIN_UNKNOWN, SESSION_IN_USE (superseded meanwhile), REDIS_UNAVAILABLE
 */
export async function submitCommand(ports: SubmitPorts, request: Submission): Promise<Accepted> {
  const { commandId, spec, traceparent } = request;
  const attributes = { 'homing.command.id': commandId, 'homing.pool': spec.pool };
  const span = ports.traces?.begin('homing submit', { parent: traceparent, kind: 'server', attributes });
  try {
    const accepted = await submit(ports, request, span?.traceparent);
    span?.end({ attributes: { 'homing.repeated': accepted.repeated } });
    return accepted;
  } catch (error) {
    span?.end({ error: error instanceof AppError ? error.code : 'INTERNAL' });
    throw error;
  }
}

async function submit(ports: SubmitPorts, request: Submission, trace: string | undefined): Promise<Accepted> {
  const { commands, presence, queue, log, meter } = ports;
  const { place, commandId, origin } = request;
  const { idempotencyKey: _, secrets, ...spec } = request.spec;
  checkPatterns(ports.patterns, spec);
  checkWebhook(ports.allowWebhook, spec.notify?.webhook);
  const sealed = sealSecrets(ports.secrets, commandId, secrets);
  const delayMs = spec.delayMs ?? 0;
  // Intent before record: should this process die after the submit, the reconciler adds the job (S2, Q1). Both leave on
  // one socket in this order, so nothing is won by waiting for the first answer.
  const firstCheckMs = Math.min(FIRST_CHECK_MS, spec.timeouts.queueMs ?? FIRST_CHECK_MS);
  const intent = presence.noteDue(`queued:${commandId}`, delayMs + firstCheckMs);
  intent.catch(() => {}); // Asked below, where it matters.
  const result = await commands.submit({
    ...place,
    commandId,
    // Also of what is started later than now, or by a job that is added anew.
    spec: trace === undefined ? spec : { ...spec, trace },
    specHash: specHashOf({ ...spec, secrets: sealed?.fingerprint }, origin),
    origin,
    ...(sealed === undefined ? {} : { sealedSecrets: sealed.text }),
  });
  switch (result.type) {
    case 'conflict':
      throw new AppError('IDEMPOTENCY_CONFLICT', 'this idempotency key was used for another command', {
        field: 'idempotencyKey',
      });
    case 'origin_unknown':
      throw new AppError('ORIGIN_UNKNOWN', 'there is no such origin session', { field: 'originSessionId' });
    case 'too_deep':
      throw new AppError('LIMIT_EXCEEDED', `a command may start commands ${LIMITS.maxDepth} deep, no deeper`);
    case 'superseded':
      throw new AppError('SESSION_IN_USE', 'another connection holds this session now');
    case 'accepted':
      break;
  }
  meter.count('homing_submits_total', { repeated: String(result.repeated) });
  log.info(
    {
      ...{ commandId, originSessionId: result.originSessionId, ownerSessionId: result.ownerSessionId, pool: spec.pool },
      ...(result.held === undefined ? {} : { held: result.held }),
      ...(result.repeated ? { repeated: true } : {}),
    },
    'a command is queued',
  );
  if (result.held !== undefined) {
    // Without a job until its turn: the intent is what it is found by.
    await intent;
    if (result.held === 'delayed') await presence.noteDue(`queued:${commandId}`, delayMs);
  } else if (result.state === 'queued') {
    const { ownerSessionId, originSessionId } = result;
    const described = describeJob({ commandId, place, spec, originSessionId, ownerSessionId });
    const job = trace === undefined ? described : { ...described, trace };
    try {
      await queue.add(spec.pool, job, { priority: spec.priority, delayMs });
    } catch (error) {
      // Stored is queued: the reconciler adds what is missing (Q2).
      meter.count('homing_queue_add_failed_total');
      log.warn({ commandId, fault: messageOf(error) }, 'a job could not be added; the reconciler will');
      // Without the intent nobody would: then the caller must know, and ask again.
      await intent;
    }
  }
  return result;
}
