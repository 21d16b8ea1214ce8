export interface Config {
  neuroscale: {
    /** The address of `neuroscale serve`, such as http://127.0.0.1:8088. */
    url: string;
    /**
     * The token with which the portal opens pull requests for the people who are signed in to it.
     * @visibility secret
     */
    token: string;
    /** Where people find the server's own pages, such as https://models.example.com. Services then link to theirs. */
    pagesUrl?: string;
    /** How often the catalog takes teams and services from `neuroscale serve`, in seconds. Default: 30. */
    refreshSeconds?: number;
  };
}
