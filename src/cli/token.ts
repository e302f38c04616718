/** `homing token`: prints a token signed with the configured secret, or with that of the data folder. */
import { Command } from 'commander';
import { dataDirOf, readSecret } from './data-dir.js';
import { CliFault, EXIT } from './fault.js';
import { collect, duration } from './options.js';
import { watchPipes, write } from './output.js';

interface TokenFlags {
  readonly sub: string;
  readonly tenant?: string;
  readonly conversation?: readonly string[];
  readonly scope: string;
  readonly pool?: readonly string[];
  readonly ttl: number;
  readonly dataDir?: string;
}

const PRINTABLE_PATTERN = /^[A-Za-z0-9._:-]{0,128}\*?$/;

export function tokenCommand(): Command {
  return new Command('token')
    .description('print a token signed with HOMING_JWT_SECRET, or with the secret of the data folder')
    .requiredOption('--sub <principal>', 'who acts')
    .option('--tenant <tenant>', 'tenant ("default")')
    .option('-c, --conversation <name>', 'conversation it is for, with an optional * at its end; repeatable', collect)
    .option(
      '--scope <scopes>',
      'of read, run, kill, delegate and admin, separated by spaces or commas',
      'read run kill',
    )
    .option('--pool <name>', 'pool it may use; repeatable', collect)
    .option('--ttl <duration>', 'how long it is valid', duration, 3_600_000)
    .option('--data-dir <dir>', 'data folder of "homing up" (HOMING_DATA_DIR)')
    .addHelpText('after', '\nExample:\n  homing token --sub alice -c "project-*" --scope "read run" --ttl 8h')
    .action(async (flags: TokenFlags) => {
      watchPipes();
      const [{ readSettings }, { parseScopes, SCOPES }] = await Promise.all([
        import('./settings.js'),
        import('../protocol/token.js'),
      ]);
      const settings = readSettings(process.env, { HOMING_DATA_DIR: flags.dataDir });
      const secret = settings.HOMING_JWT_SECRET ?? readSecret(dataDirOf(settings, process.env));
      const faults = faultsOf(flags, SCOPES);
      if (secret === undefined) faults.push('HOMING_JWT_SECRET: there is no secret to sign with');
      if (secret === undefined || faults.length > 0) throw new CliFault(EXIT.usage, ...faults);
      const { sub, tenant, conversation: conversations, pool: pools, ttl: ttlMs } = flags;
      const scope = [...parseScopes(flags.scope)].join(' ');
      const issuer = settings.HOMING_JWT_ISSUER;
      const audience = settings.HOMING_JWT_AUDIENCE;
      const request = { sub, tenant, conversations, scope, pools, ttlMs, issuer, audience };
      const { signToken } = await import('../gateway/tokens.js');
      await write(process.stdout, `${await signToken(secret, request, Date.now())}\n`);
    });
}

/** A misspelt scope or pattern would be left out silently by the node; here it is told. */
function faultsOf({ scope, conversation = [], ttl, sub }: TokenFlags, known: readonly string[]): string[] {
  const words = scope.split(/[\s,]+/).filter((word) => word !== '');
  return [
    ...(sub === '' ? ['--sub: must not be empty'] : []),
    ...words.filter((word) => !known.includes(word)).map((word) => `--scope: "${word}" is not a scope`),
    ...conversation
      .filter((name) => !PRINTABLE_PATTERN.test(name))
      .map((name) => `--conversation: "${name}" is not a conversation with at most one * at its end`),
    ...(ttl < 1_000 ? ['--ttl: must be at least 1s'] : []),
  ];
}
