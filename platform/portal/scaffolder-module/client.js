// Asks `neuroscale serve`. A refusal becomes an error with the planner's own sentences.
const { InputError } = require('@backstage/errors');

class ServeClient {
  constructor(url, token) {
    this.url = url.replace(/\/+$/, '');
    this.token = token;
  }

  static fromConfig(config) {
    return new ServeClient(config.getString('neuroscale.url'), config.getString('neuroscale.token'));
  }

  /** The plan of a form's answers: `summary`, `plan` and the skeleton's `values`. It writes nothing. */
  plan(answers, signal) {
    return this.#ask('POST', '/api/v1/plan', { body: answers, signal });
  }

  /** Opens or renews the pull request of a form's answers for a person: `url`, `number`, `verdict`. */
  pullRequest(answers, person, signal) {
    return this.#ask('POST', '/api/v1/pull-request', { body: { answers, asked_by: person }, signal });
  }

  /** Teams, and services with the answers that each was planned from, as the forge's main branch has them now. */
  services() {
    return this.#ask('GET', '/api/v1/services', {});
  }

  async #ask(method, path, { body, signal }) {
    const headers = { accept: 'application/json', authorization: `Bearer ${this.token}` };
    if (body !== undefined) headers['content-type'] = 'application/json';
    let response;
    try {
      response = await fetch(`${this.url}${path}`, { method, headers, body: JSON.stringify(body), signal });
    } catch (error) {
      if (signal?.aborted) throw error;
      const cause = error.cause?.code ?? error.message;
      throw new Error(`neuroscale serve does not answer at ${this.url} (${cause}). Is it running?`);
    }
    const text = await response.text();
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      throw new Error(`${this.url}${path} answered ${response.status} without JSON. Is it neuroscale serve?`);
    }
    if (response.ok) return answer;
    const message = answer.message ?? `neuroscale serve answered ${response.status}`;
    if (response.status >= 500) throw new Error(message);
    const refusal = new InputError(message);
    // The step's log shows the stack: a person who is refused wants the sentences, and no place in this file.
    refusal.stack = message;
    throw refusal;
  }
}

module.exports = { ServeClient };
