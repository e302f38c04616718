/** Whether Redis answers, for who asks from outside. */
import { messageOf } from '../errors.js';

const WITHIN_MS = 1_000;

/** @returns 'ok', or why it is not */
export async function checkPing(ping: () => Promise<unknown>): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${WITHIN_MS} ms`)), WITHIN_MS);
  });
  try {
    await Promise.race([ping(), late]);
    return 'ok';
  } catch (error) {
    return messageOf(error);
  } finally {
    clearTimeout(timer);
  }
}
