//! What the service advises, in the words of the page: where it names a verb of the command line,
//! the page says what it can do itself.

/** From the most exact to the most general one. */
const WORDS: [RegExp, string][] = [
  [/`ebof target tasks [^`]*` waits for its end/, "wait for its end, which Tasks shows"],
  [/`ebof target tasks`/, "see Tasks"],
  [/`ebof target move [^`]*` moves it/, "move it in Box"],
  [/`ebof target assign [^`]*` gives it to one/, "give it to one in Box"],
  [/`ebof target assign [^`]*--none`/, "take it from there in Box"],
  [/`ebof target map [^`]*` moves it/, "drag it onto that function in Box"],
  [/`ebof target detach [^`]*` first/, "detach it first, in Namespaces"],
  [/`ebof target set [^`]*write-protect=off` removes the protection/, "allow writes to it in Namespaces"],
  [/`ebof target self-test [^`]*--abort`/, "in the view of the drive"],
  [/`ebof target add namespace [^`]*` makes one/, "create one in Namespaces"],
  [/`ebof target remove namespace [^`]*`/, "in Namespaces"],
  [/`ebof target remove drive [^`]*` (closes|tries)/, "Remove in the view of the drive $1"],
  [/`ebof target account unlock [^`]*` ends that/, "unlock it in Accounts"],
  [/: `ebof target set subsystem [^`]*allowed_hosts[^`]*`/, ": allow it in Hosts"],
  [/: `ebof target set port [^`]*tls=[^`]*`/, ""],
  [/, and put it in force: `ebof target reload`/, ", and have the target reload its configuration"],
  [/, and `ebof target reload`/, ", and have the target reload its configuration"],
  [/: `ebof target (?:rotate|add|remove|show) keys?[^`]*`/, " in Keys"],
  [/`ebof target show keys` lists/, "Keys lists"],
  [/`ebof target enable [^`]*`, or /, ""],
  [/`ebof config export` shows all/, "Configuration shows all"],
  [/: `ebof config check FILE` shows the lines/, ""],
  [/: --nqn (\S+)/, ": $1"],
  [/`ebof target show[^`]*`/, "the view of the drive"],
  [/\bleave that state\b/, "have the command line leave that state"],
];
/** What only says how the command line does it. */
const ASIDE = / \((?:`ebof [^`]*`|--[^)]*)\)/g;

export function inPageWords(advice: string): string {
  return WORDS.reduce((text, [found, instead]) => text.replace(found, instead), advice.replace(ASIDE, ""));
}
