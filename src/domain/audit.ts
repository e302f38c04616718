/** Who did what, as a port: one line for each act that changes something or uses somebody else's rights. */

export interface AuditLine {
  /** `submit`, `kill`, `stdin`, `resize`, `attach`, `view`, `adopt`, `close`, `refresh`, `drain`, or `read` by a delegate. */
  readonly what: string;
  /** Whose token it was; `admin` for the admin token; absent where no token was valid. */
  readonly principal?: string | undefined;
  readonly tenant?: string | undefined;
  /** Whose command it is, where that is another principal: a delegate was at work. */
  readonly for?: string | undefined;
  /** The token was a command's own. */
  readonly insideCommandId?: string | undefined;
  readonly commandId?: string | undefined;
  readonly sessionId?: string | undefined;
  readonly conversation?: string | undefined;
  /** Of what is not a command: the node or worker. */
  readonly target?: string | undefined;
  readonly bytes?: number | undefined;
  readonly address?: string | undefined;
  /** `ok`, or the code it was refused with. */
  readonly result: string;
}

export interface Audit {
  /** Never throws, never waits. Values of environments, secrets, tokens, stdin and output are in no field. */
  note(line: AuditLine): void;
}
