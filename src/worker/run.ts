/** What a worker has for one command while it runs it, and what the steps of `run-command` hand to each other. */
import { CHUNK_BYTES } from '../domain/chunker.js';
import type { Ending } from '../domain/outcome.js';
import type {
  Chance,
  ClaimResult,
  CommandStore,
  GapNotes,
  Log,
  Meter,
  Patterns,
  Presence,
  Reassertion,
  SecretBox,
  Span,
  TracePort,
} from '../domain/ports.js';
import type { SandboxProfile } from '../domain/sandbox.js';
import { createTail } from '../domain/tail.js';
import type { Outcome, OutputStream } from '../protocol/entries.js';
import type { ClaimId, CommandId, WorkerId } from '../protocol/ids.js';
import { LIMITS } from '../protocol/limits.js';
import { createBlocks } from './blocks.js';
import type { Breakers } from './breakers.js';
import type { Cgroups } from './cgroups.js';
import type { Claims } from './claims.js';
import { type CommandToken, type Confidential, openConfidential } from './confidential.js';
import type { Containment } from './containment.js';
import { type HeldRecord, keepRecord } from './held-record.js';
import type { KeptRuns } from './kept-runs.js';
import type { Ledger } from './ledger.js';
import type { PipePool } from './pipes.js';
import { createPublisher, HELD_BYTES, type Publisher } from './publisher.js';
import type { RunAs } from './run-as.js';
import type { Shim } from './shim.js';
import type { SpoolFiles } from './spool-files.js';
import { createNotices, type Notices } from './watch-notices.js';

export interface RunPorts {
  readonly store: Pick<CommandStore, 'claim' | 'append' | 'readStdin' | 'get'>;
  readonly presence: Pick<Presence, 'noteWorkerCommand' | 'dropWorkerCommand'>;
  readonly claims: Claims;
  readonly reassertion: Pick<Reassertion, 'recordOf' | 'command'>;
  readonly kept: KeptRuns;
  /** Of the commands that are here; their figures are looked at. */
  readonly publishers: Set<Pick<Publisher, 'waiting'>>;
  readonly pipes: PipePool;
  readonly containment: Containment;
  /** Where this host lets the worker make some. */
  readonly cgroups?: Pick<Cgroups, 'group'> | undefined;
  readonly ledger: Pick<Ledger, 'enter'>;
  readonly spoolFiles: SpoolFiles;
  /** Absent while traces are off. */
  readonly traces?: TracePort | undefined;
  /** Where gaps are noted for operators. */
  readonly gapNotes?: GapNotes | undefined;
  readonly log: Log;
  readonly meter: Meter;
  readonly chance: Chance;
  /** Absent without a key: commands with secrets are refused. */
  readonly secrets?: Pick<SecretBox, 'open'> | undefined;
  readonly patterns?: Patterns | undefined;
  readonly breakers: Breakers;
  /** Where commands find `homing`. */
  readonly shim?: Pick<Shim, 'folder'> | undefined;
}

export interface RunOptions {
  readonly workerId: WorkerId;
  readonly leaseMs: number;
  readonly killGraceMs: number;
  readonly spoolBytes: number;
  readonly logFirstBytes: number;
  readonly logLastBytes: number;
  readonly outputBytesPerSec: number;
  /** Variables of `hostEnv` that commands see; see `commandEnvironment`. */
  readonly envAllow: string;
  readonly hostEnv: Readonly<Record<string, string | undefined>>;
  /** Where commands run that do not say where. */
  readonly defaultCwd: string;
  /** Where commands find a node; without it they get no address. */
  readonly gatewayUrl?: string | undefined;
  /** Folder that the working folder of a command must not leave; also where commands run that do not say where. */
  readonly workRoot?: string | undefined;
  /** Sandbox profile that every command has at least. */
  readonly sandbox?: SandboxProfile | undefined;
  /** The user that commands run as, where it is not the worker's. */
  readonly runAs?: RunAs | undefined;
}

/** How a worker makes its commands end early. */
export interface RunControl {
  /** Aborted: end the process with reason `worker_drained`, and say so. */
  readonly drained: AbortSignal;
  /** Aborted: kill the process and write nothing more; the reconciler will tell. */
  readonly abandoned: AbortSignal;
}

export type Claimed = Extract<ClaimResult, { type: 'claimed' }>;

/** What a claimed command has while it is here. */
export interface Run {
  readonly ports: RunPorts;
  readonly options: RunOptions;
  readonly control: RunControl;
  readonly commandId: CommandId;
  readonly claimId: ClaimId;
  readonly claim: Claimed;
  readonly token: CommandToken;
  readonly confidential: Confidential;
  readonly publisher: Publisher;
  readonly notices: Notices;
  readonly record: HeldRecord;
  /** Of its run, while traces are on. */
  readonly span: Span | undefined;
  /** Takes a chunk of output into the tail and the spool. */
  readonly takeOutput: (stream: OutputStream, bytes: Uint8Array) => void;
  /** Calls the handler, perhaps often, when there was more output than the command may have. */
  readonly onOutputLimit: (handler: () => void) => void;
  readonly allocate: (bytes: number) => Uint8Array;
  readonly outcomeOf: (ending: Ending) => Outcome;
  close(): void;
}

/** The caller closes it; until then its publisher works. */
export function openRun(
  ports: RunPorts,
  options: RunOptions,
  control: RunControl,
  commandId: CommandId,
  claimId: ClaimId,
  token: CommandToken,
  claim: Claimed,
  span?: Span,
): Run {
  const confidential = openConfidential(ports.secrets, commandId, token, claim.sealedSecrets);
  const beganAtMs = performance.now();
  const blocks = createBlocks(CHUNK_BYTES, Math.ceil(HELD_BYTES / CHUNK_BYTES));
  const shelf = ports.spoolFiles.of(commandId, {
    maxBytes: options.spoolBytes,
    allocate: blocks.allocateFor,
    log: ports.log.child({ commandId }),
    meter: ports.meter,
  });
  const tail = createTail(LIMITS.tailChars);
  const record = keepRecord(ports.reassertion, ports.chance.random, commandId, claimId);
  const publisher = createPublisher(
    {
      ...{
        store: ports.store,
        gapNotes: ports.gapNotes,
        log: ports.log,
        meter: ports.meter,
        random: ports.chance.random,
      },
      sayAgain: record.sayAgain,
    },
    {
      commandId,
      claimId,
      ownerSessionId: claim.ownerSessionId,
      spoolBytes: options.spoolBytes,
      firstBytes: options.logFirstBytes,
      lastBytes: options.logLastBytes,
      outputBytesPerSec: options.outputBytesPerSec,
      leaseMs: options.leaseMs,
      recycle: blocks.recycle,
      shelf,
    },
  );
  ports.publishers.add(publisher);
  const { patterns, breakers, meter } = ports;
  const { tag, principal } = claim.place;
  const breaker = breakers.of({ tag, name: claim.originSessionId ?? principal }, commandId);
  const notices = createNotices({ patterns, breaker, publisher, meter }, claim.spec.notify);
  const maxOutputBytes = claim.spec.resources?.outputBytes ?? Number.POSITIVE_INFINITY;
  let tellLimit: () => void = () => {};
  const abandon = () => publisher.close();
  control.abandoned.addEventListener('abort', abandon);
  if (control.abandoned.aborted) abandon();
  return {
    ports,
    options,
    control,
    commandId,
    claimId,
    claim,
    token,
    confidential,
    publisher,
    notices,
    record,
    span,
    takeOutput(stream, bytes) {
      tail.push(bytes);
      publisher.add({ type: 'output', stream, bytes });
      notices.output(stream, bytes);
      if (publisher.outputBytes > maxOutputBytes) tellLimit();
    },
    onOutputLimit(handler) {
      tellLimit = handler;
      if (publisher.outputBytes > maxOutputBytes) handler();
    },
    allocate: blocks.allocate,
    outcomeOf: (ending) => ({
      ...ending,
      ...(ending.error === undefined ? {} : { error: confidential.mask.text(ending.error) }),
      durationMs: Math.round(performance.now() - beganAtMs),
      outputBytes: publisher.outputBytes,
      tail: tail.text(),
    }),
    close() {
      control.abandoned.removeEventListener('abort', abandon);
      void notices.end();
      record.close();
      publisher.close();
      ports.publishers.delete(publisher);
      shelf.close();
    },
  };
}
