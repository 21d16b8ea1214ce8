// The catalog's part: services and teams of the forge's main branch, and the template with this module's actions.

const TEMPLATE = 'neuroscale.dev/template-version';
const ACTIONS = {
  'http:backstage:request': 'neuroscale:plan',
  'publish:github:pull-request': 'neuroscale:pull-request',
};
const FORM = '/create/templates/default/llm-inference-service';
const SYSTEM = {
  apiVersion: 'backstage.io/v1alpha1',
  kind: 'System',
  metadata: { name: 'neuroscale', description: 'Open language models behind URLs, served with KServe and vLLM.' },
  spec: { owner: 'platform' },
};
const FROM = 'url:neuroscale-serve';

/** Gives a NeuroScale template the actions of this module in place of those of a stock Backstage. */
class TemplateSteps {
  getProcessorName() {
    return 'neuroscale-template-steps';
  }

  async preProcessEntity(entity) {
    if (entity.kind !== 'Template' || !entity.metadata.annotations?.[TEMPLATE]) return entity;
    const input = { answers: '${{ parameters }}' };
    const steps = entity.spec.steps.map(step => {
      const action = ACTIONS[step.action];
      return action ? { ...step, action, input } : step;
    });
    return { ...entity, spec: { ...entity.spec, steps } };
  }
}

/** Keeps the catalog's teams and services equal to those of the forge's main branch. */
class ServiceEntities {
  /** `addresses`: `form`, where this portal is, and `pages`, where people find the server's own pages (or nothing). */
  constructor(client, tasks, logger, addresses) {
    this.client = client;
    this.tasks = tasks;
    this.logger = logger;
    this.addresses = addresses;
  }

  getProviderName() {
    return 'neuroscale';
  }

  async connect(connection) {
    await this.tasks.run({
      id: 'neuroscale-services',
      fn: async () => {
        try {
          const { teams, services } = await this.client.services();
          const entities = [SYSTEM, ...teams.map(group), ...services.map(service => component(service, this.addresses))];
          await connection.applyMutation({
            type: 'full',
            entities: entities.map(entity => ({ entity: located(entity), locationKey: 'neuroscale' })),
          });
        } catch (error) {
          this.logger.warn(`The services stay as they were: ${error.message}`);
        }
      },
    });
  }
}

/** A service as its folder describes it, with a link that fills the form in with its present answers, and one to its
 * own page. Backstage takes only whole addresses for links, and opens them in a new tab. */
function component({ catalog_info: entity, answers }, { form, pages }) {
  const query = new URLSearchParams({ formData: JSON.stringify(answers) });
  const change = { title: 'Change this service', url: `${form}${FORM}?${query}`, icon: 'scaffolder' };
  const place = [answers.environment, answers.service].map(encodeURIComponent).join('/');
  const own = { title: 'State, history, promote, retire', url: `${pages}/services/${place}`, icon: 'dashboard' };
  const links = [change, ...(pages ? [own] : []), ...(entity.metadata.links ?? [])];
  return { ...entity, metadata: { ...entity.metadata, links } };
}

function group({ owner, name }) {
  return {
    apiVersion: 'backstage.io/v1alpha1',
    kind: 'Group',
    metadata: { name: owner, description: `Owns and pays for the services of ${name}.` },
    spec: { type: 'team', profile: { displayName: name }, children: [] },
  };
}

/** The entity with the annotations that say where it comes from. */
function located(entity) {
  const place = { 'backstage.io/managed-by-location': FROM, 'backstage.io/managed-by-origin-location': FROM };
  const annotations = { ...place, ...entity.metadata.annotations };
  return { ...entity, metadata: { ...entity.metadata, annotations } };
}

module.exports = { ServiceEntities, TemplateSteps };
