/**
 * `npx homing` in this folder links the package into npm's cache at its first run, which takes seconds, and two that do so at the
 * same time disturb each other. Done once, before the files that run the documents' commands.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const WITHIN_MS = 120_000;

export default async function setup(): Promise<void> {
  if (process.env.HOMING_TEST_PART !== 'all') return;
  await promisify(execFile)('npx', ['homing', '--version'], { cwd: ROOT, timeout: WITHIN_MS });
}
