// Icons: strokes on a grid of 16, in the colour of the text around them.
const paths = {
  overview: "M2 13V9.5M6 13V4.500M10 13V7M14 13V2.5",
  queues: "M2.5 4h11M2.5 8h11M2.5 12h7",
  jobs: "M3 2.500h10v11H3zM5.5 6h5M5.5 8.500h5M5.5 11h3",
  flows: "M2.5 5.500h3.500v3.500H2.500zM10 2.500h3.500V6H10zM10 10h3.500v3.500H10zM6 7.200h2M8 4.300v7.400M8 4.300h2M8 11.700h2",
  alerts: "M4.3 7.200a3.7 3.7 0 0 1 7.400 0c0 3.300 1.300 4.300 1.300 4.300H3s1.300-1 1.300-4.300zM6.7 13.600a1.4 1.4 0 0 0 2.600 0M8 2v1.500",
  keys: "M9.8 6.2 13.5 2.500M12 4l1.5 1.500M10.6 9a3.6 3.6 0 1 1-3.6-3.600A3.6 3.6 0 0 1 10.6 9z",
  dead: "M8 2l6.5 11.500h-13zM8 6.500v3.200M8 11.600v.1",
  schedules: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.200l2.2 1.4",
  workers: "M4.5 4.500h7v7h-7zM6.5 2v2.500M9.5 2v2.500M6.5 11.500V14M9.5 11.500V14M2 6.500h2.500M2 9.500h2.500M11.5 6.500H14M11.5 9.500H14",
  access: "M8 1.8 13.2 4v4c0 3-2.2 5.2-5.2 6.200C5 13.2 2.8 11 2.8 8V4z",
  limits: "M2.2 12a6.2 6.2 0 1 1 11.600 0M8 10.500l3-3.800M8 11.300v.1",
  system: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.1M5 11h.1",
  pause: "M5.5 3.500v9M10.5 3.500v9",
  play: "M5 3l7.5 5L5 13z",
  retry: "M13 3.500V7H9.500M12.7 7A5.2 5.2 0 1 0 13 9.5",
  stop: "M4 4h8v8H4z",
  cancel: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM5.8 5.800l4.4 4.400M10.2 5.800l-4.4 4.4",
  trash: "M3 4.500h10M6.5 4.500v-2h3v2M4.5 4.500l.6 9h5.800l.6-9M6.7 7v4M9.3 7v4",
  promote: "M8 13V4M4.5 7.5 8 4l3.5 3.5",
  edit: "M3 13l.6-2.800L10.8 3 13 5.2 5.8 12.400z",
  copy: "M5.5 5.500h8v8h-8zM10.5 5.500v-3h-8v8h3",
  check: "M3 8.5 6.5 12 13 4.5",
  done: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM5.3 8.200l2 2 3.5-4",
  failed: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.500M8 10.800v.1",
  waiting: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  active: "M5 3l7.5 5L5 13z",
  delayed: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.200l2.2 1.4",
  close: "M4 4l8 8M12 4l-8 8",
  sun: "M8 10.500a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM8 1.500V3M8 13v1.500M1.5 8H3M13 8h1.500M3.4 3.400l1 1M11.6 11.600l1 1M12.6 3.400l-1 1M4.4 11.600l-1 1",
  moon: "M13.5 9.500A6 6 0 0 1 6.5 2.500a6 6 0 1 0 7 7z",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.8 10.8 14 14",
  help: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.3 6.300a1.7 1.7 0 1 1 2.6 1.500c-.6.4-.9.7-.9 1.400M8 11.200v.1",
  leave: "M9.5 2.500h-6v11h6M6.5 8H14M11.5 5.5 14 8l-2.5 2.5",
  plus: "M8 3v10M3 8h10",
  right: "M6 3.5 10.5 8 6 12.5",
  down: "M3.5 6 8 10.5 12.5 6",
  filter: "M2 3h12L9.5 8.500v4L6.5 14V8.500z",
  settings: "M2.5 4.500h7M12 4.500h1.500M2.5 11.500H4M6.5 11.500h7M10.8 6a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM5.2 13a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z",
  link: "M6 3H3v10h10v-3M9 2.500h4.500V7M13 3 7.5 8.5",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}

export function Mark({ size = 26 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect class="mark-ground" width="32" height="32" rx="8" />
      <path class="mark-horns" d="M6 7c0 5 3 7.5 6.5 7.500h7C23 14.5 26 12 26 7" />
      <path class="mark-head" d="M10 14.500h12l-1.6 8.200a3.6 3.6 0 0 1-3.5 2.900h-1.800a3.6 3.6 0 0 1-3.5-2.900z" />
    </svg>
  );
}
