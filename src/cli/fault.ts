/** A failure that ends a program with a sentence (or several) and a status, and without a stack trace. */
import { AppError } from '../errors.js';
import { systemSentence } from './system-faults.js';

/** 0 done, 1 failure, 2 wrong usage or settings. `homing run` has its own (PROTOCOL section 1). */
export const EXIT = { failure: 1, usage: 2 } as const;

export class CliFault extends Error {
  readonly status: number;
  readonly sentences: readonly string[];

  constructor(status: number, ...sentences: string[]) {
    super(sentences.join('\n'));
    this.name = 'CliFault';
    this.status = status;
    this.sentences = sentences;
  }
}

/** What to print and end with for anything thrown; undefined for a bug of ours, whose stack is worth seeing. */
export function faultOf(error: unknown): CliFault | undefined {
  if (error instanceof CliFault) return error;
  if (error instanceof AppError) {
    return new CliFault(error.code === 'INVALID_PARAMS' ? EXIT.usage : EXIT.failure, error.message);
  }
  const sentence = systemSentence(error);
  return sentence === undefined ? undefined : new CliFault(EXIT.failure, sentence);
}
