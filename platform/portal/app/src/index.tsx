// The portal's pages: Backstage's catalog, its forms and its settings.
import { createApp } from '@backstage/frontend-defaults';
import catalogPlugin from '@backstage/plugin-catalog/alpha';
import ReactDOM from 'react-dom/client';
import '@backstage/ui/css/styles.css';

const app = createApp({ features: [catalogPlugin] });

ReactDOM.createRoot(document.getElementById('root')!).render(app.createRoot());
