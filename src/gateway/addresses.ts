/** Where a request comes from: the peer of its socket, or what a trusted proxy says before it (`HOMING_TRUST_PROXY`). */
import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import proxyAddr from '@fastify/proxy-addr';

/** `10.0.0.0/8, loopback` → a list; every member is an address, a subnet, `loopback`, `linklocal` or `uniquelocal`. */
export const proxyList = (text: string | undefined): readonly string[] =>
  (text ?? '')
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');

/** @throws TypeError for a member that is no address */
export function createAddresses(trusted: readonly string[]): (request: IncomingMessage) => string {
  const trust = trusted.length === 0 ? () => false : proxyAddr.compile([...trusted]);
  // Without anything to trust, forwarding headers are not even read.
  return (request) => countedAs(proxyAddr(request, trust));
}

/** One IPv4 address, or the half of an IPv6 address that names a network: within it a peer has as many as it likes. */
export function countedAs(address: string | undefined): string {
  if (address === undefined) return 'unknown';
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '');
  if (!isIPv6(plain)) return plain;
  const [head = '', tail] = plain.split('%')[0]?.split('::') ?? [];
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const groups = tail === undefined ? left : [...left, ...Array(8 - left.length - right.length).fill('0'), ...right];
  return `${groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`;
}
