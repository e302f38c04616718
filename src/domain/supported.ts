/**
 * What a command may ask for that this build does not do yet. The door refuses such a command with the code; a worker
 * that meets one all the same (an older or newer door) ends it as `refused`. Nothing asked for is ever ignored silently.
 */
import type { ErrorCode } from '../errors.js';
import type { CommandSpec } from '../protocol/methods.js';
import { isSandboxProfile } from './sandbox.js';

export interface UnsupportedField {
  readonly field: string;
  readonly code: Extract<ErrorCode, 'INVALID_PARAMS' | 'SECRETS_UNAVAILABLE' | 'CONTAINMENT_UNAVAILABLE'>;
  /** A sentence that names the field. */
  readonly message: string;
}

type Row = readonly [field: string, asked: (spec: CommandSpec) => boolean, code: UnsupportedField['code']];

const UNSUPPORTED: readonly Row[] = [
  [
    'sandbox.profile',
    (spec) => spec.sandbox !== undefined && !isSandboxProfile(spec.sandbox.profile),
    'INVALID_PARAMS',
  ],
];

/** The first field of the spec that can not be honoured; undefined when all can. */
export function unsupportedField(spec: CommandSpec): UnsupportedField | undefined {
  const row = UNSUPPORTED.find(([, asked]) => asked(spec));
  if (row === undefined) return undefined;
  const [field, , code] = row;
  return { field, code, message: `${field}: workers of this version do not offer this` };
}
