// The scaffolder's actions: `neuroscale:plan` and `neuroscale:pull-request`.
const { createTemplateAction } = require('@backstage/plugin-scaffolder-node');

const ANSWERS = z => z.record(z.any()).describe("The form's answers; those that are left empty may be absent.");

/** An action that plans. It has no effect, so a dry run plans too. A refusal ends the step with the planner's words. */
function planAction(client) {
  return createTemplateAction({
    id: 'neuroscale:plan',
    description: 'Plans the service of a form: its accelerator, memory, speed and price, or why it cannot be served.',
    supportsDryRun: true,
    schema: {
      input: { answers: ANSWERS },
      output: {
        body: z => z.any().describe('What the planner answered, with the values of the skeleton.'),
        summary: z => z.string().describe("The pull request's description, in Markdown."),
      },
    },
    async handler(context) {
      const body = await client.plan(present(context.input.answers), context.signal);
      context.logger.info(plain(body.summary));
      context.output('body', body);
      context.output('summary', body.summary);
    },
  });
}

/** An action that opens the pull request as `neuroscale request` does. A dry run opens none. */
function pullRequestAction(client) {
  return createTemplateAction({
    id: 'neuroscale:pull-request',
    description: 'Opens or renews the pull request of a form for the person who is signed in.',
    supportsDryRun: true,
    schema: {
      input: { answers: ANSWERS },
      output: {
        remoteUrl: z => z.string().describe('The address of the pull request.'),
        pullRequestNumber: z => z.number().optional(),
      },
    },
    async handler(context) {
      const person = context.user?.ref;
      if (context.isDryRun) {
        context.logger.info('A dry run opens no pull request.');
        context.output('remoteUrl', '');
        return;
      }
      if (!person) throw new Error('Nobody is signed in, so nobody would have asked for this service. Sign in first.');
      const answer = await client.pullRequest(present(context.input.answers), person, context.signal);
      context.logger.info(`The pull request is at ${answer.url}`);
      context.output('remoteUrl', answer.url);
      context.output('pullRequestNumber', answer.number);
    },
  });
}

/** The answers without those that the person left empty. */
function present(answers) {
  return Object.fromEntries(Object.entries(answers).filter(([, answer]) => answer !== undefined && answer !== ''));
}

/** Markdown's first lines as log text. */
function plain(markdown) {
  return markdown.split('\n').filter(line => line.trim()).slice(0, 12).join('\n');
}

module.exports = { planAction, pullRequestAction };
