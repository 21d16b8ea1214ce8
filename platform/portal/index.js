// The backend of the portal: Backstage's own plugins, and the actions and entities of this repository.
const { createBackend } = require('@backstage/backend-defaults');

const backend = createBackend();

backend.add(import('@backstage/plugin-app-backend'));
backend.add(import('@backstage/plugin-auth-backend'));
backend.add(import('@backstage/plugin-auth-backend-module-guest-provider'));
backend.add(import('@backstage/plugin-catalog-backend'));
backend.add(import('@backstage/plugin-catalog-backend-module-scaffolder-entity-model'));
backend.add(import('@backstage/plugin-proxy-backend'));
backend.add(import('@backstage/plugin-scaffolder-backend'));
backend.add(import('@backstage/plugin-scaffolder-backend-module-github'));
backend.add(import('@roadiehq/scaffolder-backend-module-http-request'));
if (process.env.NEUROSCALE_PORTAL_MODULE !== 'off') {
  backend.add(import('@neuroscale/backstage-plugin-scaffolder-backend-module-neuroscale'));
}

backend.start();
