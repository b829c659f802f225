/*
 * The AI SDK reads streams with zod, which compiles its checks with `new Function` where it can. The content security
 * policy of these pages does not let it, and would report each try: this tells zod not to.
 */
Object.assign(globalThis, { __zod_globalConfig: { jitless: true } });
