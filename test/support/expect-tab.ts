/** The two sentences every journey ends with: this tab got its command whole, and it got nothing else. */
import { expect } from 'vitest';
import { answerOrderFaults, type DeliveryExpectation, deliveryFaults, foreignFaults } from './recording.js';
import type { Tab } from './tab.js';

/** In order, complete, once, `ended` last; and the answer of the run before all of it. */
export function expectComplete(
  tab: Tab,
  commandId: string,
  options: Omit<DeliveryExpectation, 'commandId'> = {},
): void {
  const faults = [
    ...deliveryFaults(tab.recording, { commandId, ...options }),
    ...answerOrderFaults(tab.recording).filter((fault) => fault.includes(commandId)),
  ];
  expect(faults, `${tab.name} and ${commandId}`).toEqual([]);
}

/** Entries and owner changes of these commands only. */
export function expectOnly(tab: Tab, commandIds: Iterable<string>): void {
  expect(foreignFaults(tab.recording, commandIds), tab.name).toEqual([]);
}

/** Nothing of any command. */
export const expectNothing = (tab: Tab): void => expectOnly(tab, []);
