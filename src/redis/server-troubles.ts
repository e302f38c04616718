/** What a server's own words mean for people: one sentence for each way the data folder can be wrong. */

export interface ServerTrouble {
  readonly sentence: string;
  /** True: it goes on by itself as soon as there is room. */
  readonly passing: boolean;
}

export interface TroubleFacts {
  readonly dataFolder: string;
  /** Of the server, for example `7.0.15`. */
  readonly version: string;
}

const ANOTHER = 'or choose another folder with --data-dir';

/** The first that fits decides: a later line of a log is often only what follows from an earlier one. */
const TROUBLES: readonly [RegExp, passing: boolean, (facts: TroubleFacts) => string][] = [
  [
    // A format, a type or a command that this version has never heard of.
    /Can't handle RDB format version|Unknown RDB encoding type|Unknown command '.*' reading the append only file/,
    false,
    ({ dataFolder, version }) =>
      `The data in ${dataFolder} was written by a newer Redis than this ${version}; start with that one on the PATH, ${ANOTHER}`,
  ],
  [
    /No space left on device|Disk quota exceeded|Short write while writing to the AOF file|File too large/,
    true,
    ({ dataFolder }) => `The disk of the data folder ${dataFolder} is full; make room, ${ANOTHER}`,
  ],
  [
    /Read-only file system/,
    false,
    ({ dataFolder }) =>
      `The data folder ${dataFolder} is on a disk that is read-only; mount it for writing, ${ANOTHER}`,
  ],
  [
    /Permission denied|Operation not permitted/,
    false,
    ({ dataFolder }) =>
      `The data in ${dataFolder} can not be written by this user, perhaps because another one (sudo?) made it; give it to this user, ${ANOTHER}`,
  ],
  [
    /Bad file format reading the append only file|Invalid AOF manifest|Error reading the RDB base file|Unable to obtain the AOF file|AOF.* doesn't exist/,
    false,
    ({ dataFolder }) =>
      `The data in ${dataFolder} is damaged; keep a copy, then mend it with redis-check-aof --fix ${dataFolder}/appendonlydir/appendonly.aof.manifest, ${ANOTHER}`,
  ],
];

/** @returns undefined when nothing known is in what it said */
export function troubleIn(said: string, facts: TroubleFacts): ServerTrouble | undefined {
  for (const [words, passing, sentence] of TROUBLES) {
    if (words.test(said)) return { sentence: `${sentence(facts)}.`, passing };
  }
  return undefined;
}

/** What a server says when it can write again. */
export const isTroubleOver = (line: string): boolean => line.includes('AOF write error looks solved');

/** A line without process number, role and time. */
export const bareLine = (line: string): string => line.replace(/^\d+:[A-Z] .*?\d\.\d{3} [.\-*#] /, '').trim();
