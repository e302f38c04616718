import { expect, test } from 'vitest';
import { type Entry, markAsView, parseEntryText, serializeEntry } from '../../src/protocol/entries.js';
import type { CommandId } from '../../src/protocol/ids.js';

const entry: Entry = {
  type: 'output',
  commandId: 'cmd_x' as CommandId,
  seq: 3,
  ts: 9,
  at: 0,
  stream: 'out',
  data: 'a\n"params":{ \u2028 b',
};

test('an entry is one line of JSON-RPC, whatever its data', () => {
  const text = serializeEntry(entry);
  expect(text).not.toContain('\n');
  const { type, ...params } = entry;
  expect(JSON.parse(text)).toEqual({ jsonrpc: '2.0', method: `command.${type}`, params });
});

test('marking for a viewer adds view and changes nothing else, also when the data looks like a header', () => {
  const marked = parseEntryText(markAsView(serializeEntry(entry)));
  const { type: _, ...params } = entry;
  expect(marked.params).toEqual({ view: true, ...params });
});
