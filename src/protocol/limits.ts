/** Limits of the outside contract, with their units. Settings may change some; these are the defaults and hard bounds. */
export const LIMITS = {
  subprotocol: 'homing.v1',
  /** Inbound frame. `HOMING_MAX_FRAME_BYTES` overrides. */
  maxFrameBytes: 64 * 1024,
  /** Requests in one inbound batch. */
  maxBatch: 64,
  /** A socket without a session is closed after this. */
  openWithinMs: 5_000,
  /** Sockets without a session at one node; further ones are refused. About 10 kB each. */
  maxUnopened: 4_096,
  /** From the beginning of a connection to the end of its request's headers. */
  headersWithinMs: 10_000,
  /** From there to the end of its body. */
  bodyWithinMs: 30_000,
  /** Bytes of headers of a request. */
  maxHeaderBytes: 16 * 1024,
  /** Snapshots in the answer of open and resume. */
  maxSnapshots: 200,
  /** Requests of one connection being worked on at the same time; reading pauses above it. */
  maxInFlightRequests: 64,
  conversation: /^[A-Za-z0-9._:-]{1,128}$/,
  /** Bytes of one argument or variable; Linux refuses 131,072 with the terminating NUL. */
  maxArgBytes: 131_071,
  maxArgs: 4_096,
  maxEnv: 1_024,
  maxCwdBytes: 4_096,
  /** Values of `secrets` together. */
  maxSecretBytes: 64 * 1024,
  maxIdempotencyKeyChars: 255,
  maxLabels: 16,
  maxLabelNameChars: 64,
  maxLabelValueChars: 256,
  maxWatchPatterns: 16,
  maxPatternChars: 1_024,
  /** Bytes of stdin that wait for a command to read them; a single write into an empty one may be as large as a body. */
  maxStdinBytes: 1024 * 1024,
  pageSize: 100,
  maxPageSize: 1_000,
  /** One answer of `command.log`. */
  maxLogBytes: 256 * 1024,
  /** HTTP body. */
  maxBodyBytes: 1024 * 1024,
  maxWaitMs: 60_000,
  /** `Last-Event-ID` and `cursor` of an event stream. */
  maxCursorChars: 8_192,
  /** Commands that one event stream of a conversation follows at the same time; later ones wait for their turn. */
  maxFollowedCommands: 64,
  /** Event streams of one principal at a node. */
  maxEventStreams: 1_000,
  /** Characters of output in an exit notice. */
  tailChars: 2_000,
  maxDepth: 8,
  maxTimeoutMs: 30 * 24 * 3_600_000,
} as const;
