// Loaded before a script (`--import`): a bare name that Node.js does not find beside the script is
// looked up in this environment.
import * as modules from 'node:module';
const home = new URL('./register.mjs', import.meta.url).href;
const isBare = (name) => !/^(\.{0,2}\/|[a-z][a-z0-9+.-]*:)/i.test(name);
if (modules.registerHooks) {
  modules.registerHooks({
    resolve(name, context, next) {
      try {
        return next(name, context);
      } catch (error) {
        if (!isBare(name) || context.parentURL === home) throw error;
        try { return next(name, { ...context, parentURL: home }); } catch { throw error; }
      }
    },
  });
} else {
  const hooks = `
    const home = ${JSON.stringify(home)};
    const isBare = (name) => !/^(\\.{0,2}\\/|[a-z][a-z0-9+.-]*:)/i.test(name);
    export async function resolve(name, context, next) {
      try {
        return await next(name, context);
      } catch (error) {
        if (!isBare(name) || context.parentURL === home) throw error;
        try { return await next(name, { ...context, parentURL: home }); } catch { throw error; }
      }
    }`;
  modules.register(`data:text/javascript,${encodeURIComponent(hooks)}`);
}
