// docs.js - the reference of the API: Swagger UI over openapi.yaml, in the reader's light or dark, at whatever path the
// service is mounted. Asks nobody but this server.
import SwaggerUI from 'swagger-ui-dist/swagger-ui-es-bundle.js';

const dark = matchMedia('(prefers-color-scheme: dark)');
const colour = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', colour);
colour();

// A row of a matrix stands on one line.
const rows = (text) => text.replace(/\[\n\s*([^[\]{}"]*?)\n\s*\]/g, (_, row) => `[${row.replace(/\s+/g, ' ')}]`);
const compact = (name, property) => ({
  wrapComponents: {
    [name]: (Original, { React }) => (properties) => {
      const text = properties[property];
      return React.createElement(Original, typeof text === 'string' ? { ...properties, [property]: rows(text) } : properties);
    },
  },
});

const base = new URL('.', document.baseURI).href;

SwaggerUI({
  domNode: document.getElementById('reference'),
  url: `${base}openapi.yaml`,
  deepLinking: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  tryItOutEnabled: true,
  validatorUrl: null,
  plugins: [compact('SyntaxHighlighter', 'children'), compact('RequestBodyEditor', 'value')],
  // The document's server is "/"; behind a path prefix the service is where this page is.
  requestInterceptor: (request) => {
    if (!request.url.startsWith(base)) {
      request.url = base + new URL(request.url).pathname.slice(1);
    }
    return request;
  },
});
