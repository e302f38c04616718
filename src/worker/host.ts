/** What a worker has of its host, found and checked at the start: containment, control groups, the ledger of starts, spool files, the user and folder of commands. */
import { realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../domain/ports.js';
import type { SandboxProfile } from '../domain/sandbox.js';
import { AppError } from '../errors.js';
import type { Cgroups } from './cgroups.js';
import { tryCgroups } from './cgroups-probe.js';
import { type Containment, type ContainmentOptions, createContainment } from './containment.js';
import { type Ledger, openLedger } from './ledger.js';
import { findRunAs, type RunAs } from './run-as.js';
import { createSpoolFiles, type SpoolFiles } from './spool-files.js';

export interface HostOptions extends Pick<ContainmentOptions, 'id' | 'floor' | 'without'> {
  /** `HOMING_RUN_AS`, `HOMING_WORK_ROOT`, `HOMING_SANDBOX`, where they are set. */
  readonly runAs?: string | undefined;
  readonly workRoot?: string | undefined;
  readonly sandbox?: SandboxProfile | undefined;
  /** For the ledger and the spool files; shared by the workers of this host. */
  readonly dataDir: string;
  /** How long a start is remembered. */
  readonly keepMs: number;
  readonly path: string;
  readonly log: Log;
}

export interface Host {
  readonly containment: Containment;
  /** Where this host lets the worker make some. */
  readonly cgroups: Cgroups | undefined;
  readonly ledger: Ledger;
  readonly spoolFiles: SpoolFiles;
  readonly runAs: RunAs | undefined;
  readonly workRoot: string | undefined;
  readonly sandbox: SandboxProfile | undefined;
  /** After the worker. Idempotent. */
  close(): Promise<void>;
}

/** @throws AppError with a sentence that names the setting */
export async function openHost(options: HostOptions): Promise<Host> {
  const { sandbox, dataDir, keepMs } = options;
  const runAs = options.runAs === undefined ? undefined : await findRunAs(options.runAs);
  const workRoot = options.workRoot === undefined ? undefined : await folderOf(options.workRoot);
  // Before this process has any children: they would be left behind in a group that is to be divided.
  const cgroups = await openGroups(options);
  const ledger = await openLedger({ folder: join(dataDir, 'ledger'), keepMs, nowMs: Date.now }).catch((error) => {
    cgroups?.close();
    throw error;
  });
  try {
    const containment = await createContainment({ ...options, runAs });
    if (sandbox !== undefined && !containment.profiles.includes(sandbox)) {
      await containment.close();
      throw new AppError(
        'INVALID_PARAMS',
        'HOMING_SANDBOX: needs bubblewrap (bwrap) and a host that lets it make namespaces',
      );
    }
    return {
      containment,
      cgroups,
      ledger,
      spoolFiles: createSpoolFiles(join(dataDir, 'spool'), () => performance.now()),
      runAs,
      workRoot,
      sandbox,
      async close() {
        await containment.close();
        cgroups?.close();
        await ledger.close();
      },
    };
  } catch (error) {
    cgroups?.close();
    await ledger.close();
    throw error;
  }
}

async function openGroups({ id, log }: HostOptions): Promise<Cgroups | undefined> {
  const tried = await tryCgroups(id);
  if (tried.type === 'open') return tried.cgroups;
  log.debug({ why: tried.why }, 'control groups are not used');
  return undefined;
}

async function folderOf(path: string): Promise<string> {
  const real = await realpath(path).catch(() => undefined);
  if (real === undefined || !(await stat(real)).isDirectory()) {
    throw new AppError('INVALID_PARAMS', `HOMING_WORK_ROOT: ${path} is not a folder of this host`);
  }
  return real;
}
