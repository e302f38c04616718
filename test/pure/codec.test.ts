import fc from 'fast-check';
import { expect, test } from 'vitest';
import { errorText, notificationText, parseFrame, resultText, rpcError } from '../../src/protocol/codec.js';

const single = (text: string) => {
  const frame = parseFrame(text);
  if (frame.type !== 'single') throw new Error('expected one message');
  return frame.message;
};

test('requests, notifications and answers are told apart', () => {
  expect(single('{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1}}')).toEqual({
    type: 'request',
    id: 1,
    method: 'a',
    params: { x: 1 },
  });
  expect(single('{"jsonrpc":"2.0","method":"a"}')).toEqual({ type: 'notification', method: 'a', params: {} });
  expect(single('{"jsonrpc":"2.0","id":1,"result":{}}')).toEqual({ type: 'response' });
});

test('each malformed frame gets the code of JSON-RPC and keeps the id where there is one', () => {
  const code = (text: string) => {
    const message = single(text);
    return message.type === 'invalid' ? [message.error.code, message.id] : message.type;
  };
  expect(code('{')).toEqual([-32700, null]);
  expect(code('1')).toEqual([-32600, null]);
  expect(code('[]')).toEqual([-32600, null]);
  expect(code('{"id":"a","method":"x"}')).toEqual([-32600, 'a']);
  expect(code('{"jsonrpc":"2.0","id":{},"method":"x"}')).toEqual([-32600, null]);
  expect(code('{"jsonrpc":"2.0","id":2,"method":5}')).toEqual([-32600, 2]);
  expect(code('{"jsonrpc":"2.0","id":2,"method":"x","params":3}')).toEqual([-32600, 2]);
  expect(code(`[${Array(65).fill('1').join(',')}]`)).toEqual([-32600, null]);
});

test('in a batch a bad member stands for itself', () => {
  const frame = parseFrame('[{"jsonrpc":"2.0","id":1,"method":"a"},7]');
  expect(frame).toMatchObject({ type: 'batch', messages: [{ type: 'request' }, { type: 'invalid' }] });
});

test('no text makes the parser throw', () => {
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => parseFrame(text) !== undefined));
});

test('texts are valid JSON-RPC', () => {
  expect(JSON.parse(resultText(1, undefined))).toEqual({ jsonrpc: '2.0', id: 1, result: {} });
  expect(JSON.parse(notificationText('a', { b: 1 }))).toEqual({ jsonrpc: '2.0', method: 'a', params: { b: 1 } });
  const error = rpcError({ code: 'LIMIT_EXCEEDED', message: 'too many', retryAfterMs: 5 });
  expect(JSON.parse(errorText('x', error))).toEqual({
    jsonrpc: '2.0',
    id: 'x',
    error: { code: -32000, message: 'too many', data: { code: 'LIMIT_EXCEEDED', retryable: true, retryAfterMs: 5 } },
  });
  expect(rpcError({ code: 'INVALID_PARAMS', message: 'no', field: 'argv' }).code).toBe(-32602);
});
