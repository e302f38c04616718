/** Reads a paged list to its end, or to a bound that no terminal needs more than. */

const PAGE_SIZE = 200;
const MAX_ITEMS = 10_000;

/** @param read gets the query of one page */
export async function readPages<T>(
  read: (query: string) => Promise<{ readonly items: readonly T[]; readonly next?: string | number | undefined }>,
): Promise<T[]> {
  const all: T[] = [];
  let cursor: string | number | undefined;
  do {
    const query = new URLSearchParams({ limit: String(PAGE_SIZE) });
    if (cursor !== undefined) query.set('cursor', String(cursor));
    const page = await read(`?${query}`);
    all.push(...page.items);
    cursor = page.next;
  } while (cursor !== undefined && cursor !== null && all.length < MAX_ITEMS);
  return all;
}
