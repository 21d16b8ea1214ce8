// Answers, line by line, what Backstage does. Each line of the standard input is a JSON request:
//   {"op": "render", "engine": "0.7", "source", "values", "trimBlocks", "lstripBlocks"}  a file of fetch:template
//   {"op": "value", "engine": "0.7", "source", "context"}                               an input of a step
//   {"op": "template", "entity"}                                                        is it a valid Template?
//   {"op": "component", "entity"}                                                       does the catalog take it?
// and each line of the standard output {"result": ...} or {"error": "..."}.
import { createInterface } from 'node:readline';
import { createTemplateRenderer } from 'nunjitsu';
import { createTemplateRenderer as createOlderTemplateRenderer } from 'nunjitsu-0-6';

// The options of plugin-scaffolder-backend's templateActionHandler and NunjucksWorkflowRunner.
const create = {
  0.7: createTemplateRenderer,
  0.6: createOlderTemplateRenderer,
};
const renderers = new Map();

function renderer({ engine, trimBlocks, lstripBlocks }) {
  const key = `${engine} ${trimBlocks} ${lstripBlocks}`;
  if (!renderers.has(key)) {
    renderers.set(key, create[engine]({ allowRegexExecution: true, trimBlocks, lstripBlocks }));
  }
  return renderers.get(key);
}

let validator;
let catalog;

// The policies of plugin-catalog-backend's CatalogBuilder, and its schema of a Component.
async function inCatalog(entity) {
  catalog ??= await import('@backstage/catalog-model');
  const policies = catalog.EntityPolicies.allOf([
    new catalog.SchemaValidEntityPolicy(),
    new catalog.DefaultNamespaceEntityPolicy(),
    new catalog.NoForeignRootFieldsEntityPolicy(),
    new catalog.FieldFormatEntityPolicy(),
  ]);
  return await catalog.componentEntityV1alpha1Validator.check(await policies.enforce(entity));
}

async function answer(request) {
  switch (request.op) {
    case 'render':
      return renderer(request).render(request.source, { values: request.values });
    case 'value':
      return renderer(request).renderValue(request.source, request.context) ?? null;
    case 'template':
      // Loaded on demand: it brings a hundred packages along.
      validator ??= (await import('@backstage/plugin-scaffolder-common')).templateEntityV1beta3Validator;
      return await validator.check(request.entity);
    case 'component':
      return await inCatalog(request.entity);
    default:
      throw new Error(`unknown operation ${request.op}`);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let reply;
  try {
    reply = { result: await answer(JSON.parse(line)) };
  } catch (error) {
    reply = { error: String(error?.message ?? error) };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
