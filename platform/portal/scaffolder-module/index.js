// Backstage's part of NeuroScale: two scaffolder actions, and the catalog's teams and services. All of them ask
// `neuroscale serve`, which plans, renders and opens pull requests as the command line does.
const { coreServices, createBackendFeatureLoader, createBackendModule } = require('@backstage/backend-plugin-api');
const { catalogProcessingExtensionPoint } = require('@backstage/plugin-catalog-node');
const { scaffolderActionsExtensionPoint } = require('@backstage/plugin-scaffolder-node');
const { planAction, pullRequestAction } = require('./actions');
const { ServiceEntities, TemplateSteps } = require('./catalog');
const { ServeClient } = require('./client');

const scaffolderModule = createBackendModule({
  pluginId: 'scaffolder',
  moduleId: 'neuroscale',
  register(registration) {
    registration.registerInit({
      deps: { scaffolder: scaffolderActionsExtensionPoint, config: coreServices.rootConfig },
      async init({ scaffolder, config }) {
        const client = ServeClient.fromConfig(config);
        scaffolder.addActions(planAction(client), pullRequestAction(client));
      },
    });
  },
});

const catalogModule = createBackendModule({
  pluginId: 'catalog',
  moduleId: 'neuroscale',
  register(registration) {
    registration.registerInit({
      deps: {
        catalog: catalogProcessingExtensionPoint,
        config: coreServices.rootConfig,
        logger: coreServices.logger,
        scheduler: coreServices.scheduler,
      },
      async init({ catalog, config, logger, scheduler }) {
        const seconds = config.getOptionalNumber('neuroscale.refreshSeconds') ?? 30;
        const tasks = scheduler.createScheduledTaskRunner({ frequency: { seconds }, timeout: { seconds: 60 } });
        catalog.addProcessor(new TemplateSteps());
        const form = config.getString('app.baseUrl').replace(/\/+$/, '');
        const pages = config.getOptionalString('neuroscale.pagesUrl')?.replace(/\/+$/, '');
        catalog.addEntityProvider(new ServiceEntities(ServeClient.fromConfig(config), tasks, logger, { form, pages }));
      },
    });
  },
});

module.exports = createBackendFeatureLoader({
  *loader() {
    yield scaffolderModule;
    yield catalogModule;
  },
});
module.exports.default = module.exports;
