/** What one script may be asked about. */
import { Cluster, type Redis } from 'ioredis';
import type { Tag } from '../protocol/ids.js';

/** Of equal ones the keys may stand in one script. */
export type SlotGroup = Tag | '';

/** Everything on one server; on a Cluster a conversation, whose keys share a slot. */
export const slotGroup = (redis: Redis | Cluster, tag: Tag): SlotGroup => (redis instanceof Cluster ? tag : '');

/** How many keys a script that only looks may have: it holds up all others for about a microsecond each. */
export const MAX_LOOKED_AT = 256;
