// A real OpenID Connect server for tests: the certified implementation oidc-provider, with people that the test names.
// Arguments: the port, and JSON {clients, people}. The forms of its login and consent are its own.
import Provider from "oidc-provider";

const [port, given] = process.argv.slice(2);
const { clients, people } = JSON.parse(given);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients,
  claims: {
    openid: ["sub"],
    profile: ["name", "preferred_username"],
    email: ["email"],
    groups: ["groups"],
  },
  scopes: ["openid", "profile", "email", "groups"],
  findAccount: (context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id, email: `${id}@example.org`, ...people[id] }),
  }),
  cookies: { keys: ["only for tests"] },
});
provider.listen(Number(port), "127.0.0.1", () => console.log(`ready ${issuer}`));
