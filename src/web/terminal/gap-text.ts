/** A gap as the terminal shows it, at the place where the output is missing. Pure. */
import type { Entry } from '../../client/index.js';
import { gapSentence } from '../state/words.js';

type Gap = Extract<Entry, { type: 'gap' }>;

/** CAN ends an escape sequence that the gap cut in two; colours are reset, because what set them may be missing. */
const RESET = '\x18\x1b[0m';

/** A line of its own. @param atLineStart whether the cursor is at the start of a line already */
export const gapText = ({ bytes, reason }: Pick<Gap, 'bytes' | 'reason'>, atLineStart: boolean): string =>
  `${RESET}${atLineStart ? '' : '\r\n'}\x1b[7m ⋯ ${gapSentence(bytes, reason)} ⋯ \x1b[0m\r\n`;
