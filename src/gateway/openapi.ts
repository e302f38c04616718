/** The OpenAPI 3.1 description of the HTTP door, made from the same schemas that parse its requests. */
import { z } from 'zod';
import { ERROR_CODES, type ErrorCode } from '../errors.js';
import { type Answer, type HttpRoute, httpRoutes } from '../protocol/http.js';
import { LIMITS } from '../protocol/limits.js';
import {
  acceptedShape,
  commandPageShape,
  entryShape,
  errorShape,
  killedShape,
  outcomeShape,
  sessionPageShape,
  sessionShape,
  snapshotShape,
} from '../protocol/shapes.js';

type Json = Readonly<Record<string, unknown>>;

/** What has a name of its own in the description. */
const NAMED = [
  outcomeShape,
  snapshotShape,
  entryShape,
  sessionShape,
  acceptedShape,
  killedShape,
  commandPageShape,
  sessionPageShape,
  errorShape,
] as const;

const COMMON_ERRORS: readonly ErrorCode[] = [
  'UNAUTHENTICATED',
  'TOKEN_EXPIRED',
  'INVALID_PARAMS',
  'RATE_LIMITED',
  'REDIS_UNAVAILABLE',
  'KEYS_UNAVAILABLE',
];

const ref = (name: string): Json => ({ $ref: `#/components/schemas/${name}` });

/** As a caller writes it (`input`) or as a node answers it (`output`); shapes with a name become references. */
function schemaOf(shape: z.ZodType, io: 'input' | 'output'): Json {
  const made = z.toJSONSchema(shape, { io, target: 'draft-2020-12', unrepresentable: 'any', override: trim });
  const { $schema: _, $defs: defs, ...schema } = made as Record<string, unknown>;
  const moved = JSON.stringify(schema).replaceAll('"#/$defs/', '"#/components/schemas/');
  const named = z.globalRegistry.get(shape)?.id;
  if (defs === undefined && named === undefined) return schema;
  return named === undefined ? (JSON.parse(moved) as Json) : ref(named);
}

/** Bounds that only say what JSON can hold tell a reader nothing. Unknown fields are ignored, in both directions. */
function trim({ jsonSchema }: { jsonSchema: Record<string, unknown> }): void {
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
  if (jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties;
}

function components(): Json {
  const registry = z.registry<{ id: string }>();
  for (const shape of NAMED) {
    const id = z.globalRegistry.get(shape)?.id;
    if (id !== undefined) registry.add(shape, { id });
  }
  const { schemas } = z.toJSONSchema(registry, {
    io: 'output',
    target: 'draft-2020-12',
    uri: (id) => `#/components/schemas/${id}`,
    override: trim,
  });
  return Object.fromEntries(
    Object.entries(schemas).map(([id, schema]) => {
      const { $schema: _, $id: __, ...rest } = schema as Record<string, unknown>;
      return [id, rest];
    }),
  );
}

function parametersOf(shape: z.ZodObject | undefined, where: 'path' | 'query' | 'header'): Json[] {
  if (shape === undefined) return [];
  const { properties = {}, required = [] } = schemaOf(shape, 'input') as {
    properties?: Record<string, Record<string, unknown>>;
    required?: string[];
  };
  return Object.entries(properties).map(([name, { description, ...schema }]) => ({
    name,
    in: where,
    required: where === 'path' || required.includes(name),
    ...(description === undefined ? {} : { description }),
    schema,
  }));
}

function answerOf(answer: Answer): Json {
  switch (answer.type) {
    case 'none':
      return { description: answer.says };
    case 'json':
      return {
        description: answer.says,
        content: { 'application/json': { schema: schemaOf(answer.shape, 'output') } },
      };
    case 'text':
      return {
        description: answer.says,
        content: Object.fromEntries(
          Object.entries(answer.media).map(([media, line]) => [
            media,
            { schema: line === undefined ? { type: 'string' } : schemaOf(line, 'output') },
          ]),
        ),
      };
  }
}

/** One answer for each status, with the codes that come with it. */
function errorsOf(codes: readonly ErrorCode[]): Json {
  const statuses = new Map<number, ErrorCode[]>();
  for (const code of codes) {
    const { status } = ERROR_CODES[code];
    statuses.set(status, [...(statuses.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...statuses].map(([status, some]) => [
      status,
      { description: some.join(', '), content: { 'application/json': { schema: ref('Error') } } },
    ]),
  );
}

function operationOf(name: string, route: HttpRoute): Json {
  const { summary, scope, params, query, headers, body, answers, errors, open } = route;
  const parameters = [
    ...parametersOf(params, 'path'),
    ...parametersOf(query, 'query'),
    ...parametersOf(headers, 'header'),
  ];
  return {
    operationId: name,
    summary,
    ...(scope === undefined ? {} : { description: `Needs the scope \`${scope}\`.` }),
    ...(open === true ? { security: [] } : {}),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined
      ? {}
      : {
          requestBody: {
            required: !body.safeParse(undefined).success,
            content: { 'application/json': { schema: schemaOf(body, 'input') } },
          },
        }),
    responses: {
      ...Object.fromEntries(Object.entries(answers).map(([status, answer]) => [status, answerOf(answer)])),
      ...(open === true ? {} : errorsOf([...COMMON_ERRORS, ...errors])),
    },
  };
}

export function openApi(version: string): Json {
  const paths: Record<string, Record<string, Json>> = {};
  for (const [name, route] of Object.entries<HttpRoute>(httpRoutes)) {
    paths[route.path] = { ...paths[route.path], [route.method]: operationOf(name, route) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Homing',
      version,
      description:
        'Runs background commands anywhere in a cluster and brings their output home. Times are integers in milliseconds, ' +
        `sizes are bytes; bodies have at most ${LIMITS.maxBodyBytes} bytes. Fields you do not know are to be ignored.`,
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/' }],
    security: [{ token: [] }],
    paths,
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } },
      schemas: components(),
    },
  };
}
