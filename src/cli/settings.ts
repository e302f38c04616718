/** Settings of a process: environment, `NAME_FILE`, flags over both; every fault at once, with exit status 2. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { parseSettings, type SettingName, type Settings, settingsSchema } from '../config.js';
import { type Env, resolveFiles } from './env-files.js';
import { CliFault, EXIT } from './fault.js';

/** Flags in the form of settings; what was not given is undefined. */
export type Overrides = Partial<Record<SettingName, string>>;

/** Addresses that only this machine reaches. A name is not looked up: only `localhost` is known to be one. */
export function isLoopback(host: string): boolean {
  if (isIP(host) === 4) return host.startsWith('127.');
  return host === '::1' || host === 'localhost';
}

/** What a node needs beyond the form of its settings. */
export function nodeFaults(settings: Settings): string[] {
  const faults: string[] = [];
  const open = settings.HOMING_JWT_SECRET === undefined && settings.HOMING_JWKS_URL === undefined;
  if (open && !isLoopback(settings.HOMING_HOST)) {
    faults.push(
      `HOMING_JWT_SECRET: this or HOMING_JWKS_URL is needed to listen on ${settings.HOMING_HOST}, which other machines reach`,
    );
  }
  if (settings.HOMING_JWT_SECRET_PREVIOUS !== undefined && settings.HOMING_JWT_SECRET === undefined) {
    faults.push('HOMING_JWT_SECRET_PREVIOUS: is for the time of a change, and needs HOMING_JWT_SECRET beside it');
  }
  if (settings.HOMING_ADMIN_TOKEN === undefined && !isLoopback(settings.HOMING_OPS_HOST)) {
    faults.push(`HOMING_ADMIN_TOKEN: is needed to listen on ${settings.HOMING_OPS_HOST}, which other machines reach`);
  }
  return faults;
}

/** What a worker needs beyond the form of its settings. It has no admin token: commands run beside it. */
export function workerFaults(settings: Settings): string[] {
  const { HOMING_WORKER_OPS_PORT: port, HOMING_OPS_HOST: host, HOMING_METRICS_TOKEN: token } = settings;
  if (port === undefined || token !== undefined || isLoopback(host)) return [];
  return [`HOMING_METRICS_TOKEN: is needed to listen on ${host}, which other machines reach`];
}

/**
 * @param furtherFaults what must hold between settings, asked also when the form of others is wrong
 * @throws CliFault with every fault, status 2
 */
export function readSettings(
  env: Env,
  overrides: Overrides = {},
  furtherFaults: (settings: Settings) => readonly string[] = () => [],
): Settings {
  const files = resolveFiles(env, Object.keys(settingsSchema.shape), (path) => readFileSync(path, 'utf8'));
  const given = Object.entries(overrides).filter(([, value]) => value !== undefined);
  const merged: Record<string, string | undefined> = { ...files.env, ...Object.fromEntries(given) };
  const parsed = parseSettings(merged);
  const faults = [...files.faults, ...(parsed.ok ? [] : parsed.faults)];
  const faulty = new Set(faults.map((fault) => fault.slice(0, fault.indexOf(':')).replace(/_FILE$/, '')));
  for (const name of faulty) merged[name] = undefined;
  const sound = parsed.ok ? parsed : parseSettings(merged);
  if (sound.ok) faults.push(...furtherFaults(sound.settings).filter((fault) => !faulty.has(fault.split(':')[0] ?? '')));
  if (!parsed.ok || faults.length > 0) throw new CliFault(EXIT.usage, ...faults);
  return parsed.settings;
}
