// Cron expressions in words, in the languages of the dashboard. Loaded when a schedule is shown.
import cronstrue from "cronstrue";
import "cronstrue/locales/es";

export const words = cronstrue;
